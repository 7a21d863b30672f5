internal import CLinux
public import Synchronization

/// A value that is accessible only while a lock is held.
///
/// `Synchronization.Mutex` would do, but its slow path lies in a runtime library without instrumentation, so
/// the thread sanitizer reports a race for every contended lock. Here the sanitizer sees every atomic
/// operation. A POSIX mutex would cost two calls, 57 instructions together, and 40 bytes.
public struct Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is used only between lock and unlock.

    /// The lock and its value in one allocation, where neither moves. Both are used through pointers: the
    /// lock guarantees the exclusivity that a stored property would check at run time.
    @usableFromInline
    final class Storage: ManagedBuffer<UInt32, Value> {
        @inlinable
        deinit {
            _ = withUnsafeMutablePointerToElements { $0.deinitialize(count: 1) }
        }
    }

    @usableFromInline let storage: Storage

    /// A lock around `value`. Copies share the lock and the value.
    @inlinable
    public init(_ value: consuming sending Value) {
        storage = unsafeDowncast(Storage.create(minimumCapacity: 1) { _ in LockWord.free }, to: Storage.self)
        // Swift's header is copyable, and an atomic number is not.
        storage.withUnsafeMutablePointerToHeader { _ = UnsafeMutableRawPointer($0).bindMemory(to: LockWord.self, capacity: 1) }
        // Moved into its place, and not captured: a copy would count each reference in it.
        storage.withUnsafeMutablePointerToElements { $0 }.initialize(to: consume value)
    }

    // Public and inlinable, though no product exports this module: Swift does not specialise `package` code
    // across modules, and would look the types up at run time in each call.

    /// Runs `body` with the lock held. Never call user code inside; return objects whose release may run user
    /// code.
    ///
    /// The order of locks: a thread that holds a socket's lock may lock the record of its connection, the
    /// state of its listener or of an acceptor, and never the other way round. A thread that holds the record
    /// of a UDP socket may lock the inherited descriptor that it takes over. No other two locks are
    /// held together. A quota, for example, wakes listeners only after it has released its lock.
    @inlinable
    public func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try storage.withUnsafeMutablePointers { header, value throws(Failure) in
            let word = UnsafeMutableRawPointer(header).assumingMemoryBound(to: LockWord.self)
            LockWord.lock(word)
            defer { LockWord.unlock(word) }
            return try body(&value.pointee)
        }
    }
}

/// A lock of one word (futex(7)): 0 is free, 1 is held, 2 is held and a thread may sleep on it.
///
/// It is used by its address, which is what the kernel knows it by.
@usableFromInline
struct LockWord: ~Copyable {
    // In memory that was set to `free`.
    @usableFromInline let value: Atomic<UInt32>

    @inlinable static var free: UInt32 { 0 }

    @inlinable
    static func lock(_ word: UnsafeMutablePointer<LockWord>) {
        let isFree = word.pointee.value.compareExchange(expected: 0, desired: 1, ordering: .acquiring).exchanged
        if !isFree { wait(for: word) }
    }

    @inlinable
    static func unlock(_ word: UnsafeMutablePointer<LockWord>) {
        if word.pointee.value.exchange(0, ordering: .releasing) == 2 { wake(word) }
    }

    @usableFromInline
    static func wait(for word: UnsafeMutablePointer<LockWord>) {
        while word.pointee.value.exchange(2, ordering: .acquiring) != 0 { CLinux_futex_wait(word, 2) }
    }

    @usableFromInline
    static func wake(_ word: UnsafeMutablePointer<LockWord>) {
        CLinux_futex_wake(word)
    }
}

internal import CLinux
public import Synchronization

/// A value that is accessible only while a lock is held.
///
/// This type replaces `Synchronization.Mutex`. The slow path of `Mutex` is in a runtime library without
/// instrumentation, so the thread sanitizer reports a race for every contended lock. Here the sanitizer
/// sees every atomic operation. A POSIX mutex would cost two calls, which execute 57 instructions in total,
/// and 40 bytes.
public struct Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is used only between lock and unlock.

    /// The lock and its value in one allocation, at stable addresses. Both are accessed through pointers,
    /// because the lock already guarantees the exclusivity that Swift would check at run time for a stored
    /// property.
    @usableFromInline
    final class Storage: ManagedBuffer<UInt32, Value> {
        @inlinable
        deinit {
            _ = withUnsafeMutablePointerToElements { $0.deinitialize(count: 1) }
        }
    }

    @usableFromInline let storage: Storage

    /// Creates a lock around `value`. Copies of the `Locked` share the lock and the value.
    @inlinable
    public init(_ value: consuming sending Value) {
        storage = unsafeDowncast(Storage.create(minimumCapacity: 1) { _ in LockWord.free }, to: Storage.self)
        // The header of a `ManagedBuffer` must be copyable, but `Atomic` is not. So the header is a `UInt32`,
        // and its memory is bound to `LockWord`.
        storage.withUnsafeMutablePointerToHeader { _ = UnsafeMutableRawPointer($0).bindMemory(to: LockWord.self, capacity: 1) }
        // The value is moved into place instead of being captured, because a copy would retain every
        // reference in it.
        storage.withUnsafeMutablePointerToElements { $0 }.initialize(to: consume value)
    }

    // These members are public and inlinable, although no product exports this module. Swift does not
    // specialise `package` code across modules, so each call would look up the types at run time.

    /// Runs `body` with the lock held. Never call user code in `body`. If releasing an object may run user
    /// code, return the object from `body`.
    ///
    /// Lock order: a thread that holds a socket's lock may lock the record of its connection, or the state
    /// of its listener or of an acceptor, but never the reverse. A thread that holds the record of a UDP
    /// socket may lock the inherited descriptor that the socket adopts. No other two locks are held at the
    /// same time. For example, a quota wakes listeners only after releasing its lock.
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

/// A one-word lock (futex(7)): 0 means free, 1 means held, and 2 means held while other threads may be
/// sleeping.
///
/// It is used only through its address, by which the kernel identifies the futex.
@usableFromInline
struct LockWord: ~Copyable {
    // The memory was set to `free` before it was bound to this type.
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

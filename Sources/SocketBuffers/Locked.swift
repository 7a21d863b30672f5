internal import Glibc

/// A value that is only reached while a mutex is held. Copies share the one value.
///
/// `Synchronization.Mutex` would do, but its slow path lives in an uninstrumented runtime library, so the thread sanitizer
/// reports a race for every contended lock. The sanitizer understands a POSIX mutex.
public struct Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is only touched between lock and unlock, and the mutex's address is stable.
    // One allocation for both: a connection has five of these, and an idle one is little else than its memory.
    @usableFromInline let storage: Storage

    @usableFromInline
    final class Storage: ManagedBuffer<LockedMutex, Value> {
        deinit {
            withUnsafeMutablePointers { mutex, value in
                mutex.destroy()
                value.deinitialize(count: 1)
            }
        }
    }

    /// A lock around `value`.
    public init(_ value: sending Value) {
        let buffer = Storage.create(minimumCapacity: 1) { _ in LockedMutex() }
        storage = unsafeDowncast(buffer, to: Storage.self)
        let places = storage.withUnsafeMutablePointers { ($0, $1) }
        places.0.prepare()
        places.1.initialize(to: value)
    }

    // Public and inlinable, though no product shows this module: only so do other modules call code made for their types (what is `package` is not
    // specialised across modules, and each call looked its types up at run time).

    /// Runs `body` with the lock held. Never call user code inside; a socket's lock may be held while its connection's is taken, not the other
    /// way round, and no two others are ever held together.
    @inlinable
    public func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let (mutex, value) = storage.withUnsafeMutablePointers { ($0, $1) }
        mutex.lock()
        // Once the lock is released, another holder may free it all: `storage` stays until then.
        defer { withExtendedLifetime(storage) { mutex.unlock() } }
        return try body(&value.pointee)
    }
}

/// The POSIX mutex of a `Locked`; it is only ever used where it lies.
@usableFromInline
struct LockedMutex {
    private let mutex = pthread_mutex_t()
}

// Functions of the place, not of the value: two threads that change one value at a time would be a race.
extension UnsafeMutablePointer<LockedMutex> {
    private var mutex: UnsafeMutablePointer<pthread_mutex_t> {
        UnsafeMutableRawPointer(self).assumingMemoryBound(to: pthread_mutex_t.self)
    }

    fileprivate func prepare() { pthread_mutex_init(mutex, nil) }

    fileprivate func destroy() { pthread_mutex_destroy(mutex) }

    @usableFromInline
    func lock() { pthread_mutex_lock(mutex) }

    @usableFromInline
    func unlock() { pthread_mutex_unlock(mutex) }
}

public import Glibc

/// A value that is only reached while a mutex is held.
///
/// `Synchronization.Mutex` would do, but its slow path lives in an uninstrumented runtime library, so the
/// thread sanitizer reports a race for every contended lock. The sanitizer understands a POSIX mutex.
public struct Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is only touched between lock and unlock.

    /// The value and its mutex in one piece of memory, where neither moves. Both are reached by pointers: the
    /// mutex gives the value the exclusivity that a stored property would be checked for at run time.
    @usableFromInline
    final class Storage: ManagedBuffer<Value, pthread_mutex_t> {
        @inlinable
        deinit {
            _ = withUnsafeMutablePointerToElements { pthread_mutex_destroy($0) }
        }
    }

    @usableFromInline let storage: Storage

    /// A lock around `value`. Copies of it are the same lock around the same value.
    @inlinable
    public init(_ value: sending Value) {
        nonisolated(unsafe) let value = value
        storage = unsafeDowncast(Storage.create(minimumCapacity: 1) { _ in value }, to: Storage.self)
        storage.withUnsafeMutablePointerToElements { mutex in
            mutex.initialize(to: pthread_mutex_t())
            pthread_mutex_init(mutex, nil)
        }
    }

    // Public and inlinable, though no product shows this module: only so do other modules call code made for
    // their types (what is `package` is not specialised across modules, and each call looked its types up at
    // run time).

    /// Runs `body` with the lock held. Never call user code inside, and hand out what may run some when it is
    /// released.
    ///
    /// The order of locks: under a socket's lock the facts of its connection, the state of its listener or
    /// that of one of the acceptors may be locked, and never the other way round. No other two are held
    /// together: not even a loop's and that of a quota, which wakes listeners when its lock is free again.
    @inlinable
    public func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try storage.withUnsafeMutablePointers { value, mutex throws(Failure) in
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            return try body(&value.pointee)
        }
    }
}

public import Glibc

/// A value that is accessible only while a mutex is held.
///
/// `Synchronization.Mutex` would do, but its slow path lies in a runtime library without instrumentation, so
/// the thread sanitizer reports a race for every contended lock. The sanitizer understands a POSIX mutex.
public struct Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is used only between lock and unlock.

    /// The value and its mutex in one allocation, where neither moves. Both are used through pointers: the
    /// mutex guarantees the exclusivity that a stored property would check at run time.
    @usableFromInline
    final class Storage: ManagedBuffer<Value, pthread_mutex_t> {
        @inlinable
        deinit {
            _ = withUnsafeMutablePointerToElements { pthread_mutex_destroy($0) }
        }
    }

    @usableFromInline let storage: Storage

    /// A lock around `value`. Copies share the lock and the value.
    @inlinable
    public init(_ value: sending Value) {
        nonisolated(unsafe) let value = value
        storage = unsafeDowncast(Storage.create(minimumCapacity: 1) { _ in value }, to: Storage.self)
        storage.withUnsafeMutablePointerToElements { mutex in
            mutex.initialize(to: pthread_mutex_t())
            pthread_mutex_init(mutex, nil)
        }
    }

    // Public and inlinable, though no product exports this module: Swift does not specialise `package` code
    // across modules, and would look the types up at run time in each call.

    /// Runs `body` with the lock held. Never call user code inside; return objects whose release may run user
    /// code.
    ///
    /// The order of locks: a thread that holds a socket's lock may lock the record of its connection, the
    /// state of its listener or that of an acceptor, and never the other way round. No other two locks are
    /// held together. A quota, for example, wakes listeners only after it has released its lock.
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

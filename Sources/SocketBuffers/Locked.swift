internal import Glibc

/// A value that is only reached while a mutex is held.
///
/// `Synchronization.Mutex` would do, but its slow path lives in an uninstrumented runtime library, so the thread sanitizer
/// reports a race for every contended lock. The sanitizer understands a POSIX mutex.
public final class Locked<Value>: @unchecked Sendable {
    // Unchecked: the value is only touched between lock and unlock, and the mutex's address is stable.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    // Behind a pointer: the mutex gives it the exclusivity that a stored property would be checked for at run time.
    @usableFromInline let value: UnsafeMutablePointer<Value>

    /// A lock around `value`.
    public init(_ value: sending Value) {
        self.value = .allocate(capacity: 1)
        self.value.initialize(to: value)
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
        value.deinitialize(count: 1)
        value.deallocate()
    }

    // Public and inlinable, though no product shows this module: only so do other modules call code made for their types (what is `package` is not
    // specialised across modules, and each call looked its types up at run time).

    /// Runs `body` with the lock held. Never call user code inside; a socket's lock may be held while its connection's is taken, not the other
    /// way round, and no two others are ever held together.
    @inlinable
    public func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        lock()
        defer { unlock() }
        return try body(&value.pointee)
    }

    @usableFromInline
    func lock() { pthread_mutex_lock(mutex) }

    @usableFromInline
    func unlock() { pthread_mutex_unlock(mutex) }
}

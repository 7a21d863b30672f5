internal import Glibc

/// A value that is only reached while a mutex is held.
///
/// `Synchronization.Mutex` would do, but its slow path lives in an uninstrumented runtime library, so the thread sanitizer
/// reports a race for every contended lock. The sanitizer understands a POSIX mutex.
package final class Locked<Value>: @unchecked Sendable {
    // Unchecked: `value` is only touched between lock and unlock, and the mutex's address is stable.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private var value: Value

    package init(_ value: sending Value) {
        self.value = value
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    /// Runs `body` with the lock held. Never call user code inside; a socket's lock may be held while its connection's is taken, not the other
    /// way round, and no two others are ever held together.
    package func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&value)
    }
}

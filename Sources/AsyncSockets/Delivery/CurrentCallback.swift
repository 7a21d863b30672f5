internal import Glibc
internal import Synchronization

/// The connection that is calling its socket's delegate inline. The delegate's requests are passed to it
/// directly.
struct CurrentCallback<Source: EventSource>: ~Copyable, Sendable {
    /// The calling thread, or 0. It equals the current thread only inside a callback of `connection`.
    private let thread = Atomic<pthread_t>(0)
    /// The address of the connection, which stays alive while the thread is in the callback.
    private let connection = Atomic<UInt>(0)

    /// Called before callbacks of `connection`; `close()` is called after them. Never called on two threads
    /// simultaneously, because all connections of a socket deliver on its only loop or on its queue.
    func open(for connection: Source) {
        self.connection.store(UInt(bitPattern: Unmanaged.passUnretained(connection).toOpaque()), ordering: .relaxed)
        thread.store(pthread_self(), ordering: .relaxed)
    }

    func close() {
        thread.store(0, ordering: .relaxed)
    }

    /// Calls `body` with the connection. Returns `false`, without calling `body`, outside a callback or if
    /// the socket may already have another connection.
    @inline(__always)
    func withConnection(_ body: (Source) -> Void) -> Bool {
        guard thread.load(ordering: .relaxed) == pthread_self(),
            let address = UnsafeRawPointer(bitPattern: connection.load(ordering: .relaxed))
        else { return false }
        return Unmanaged<Source>.fromOpaque(address)._withUnsafeGuaranteedRef { connection in
            guard connection.isCurrent else { return false }
            body(connection)
            return true
        }
    }
}

internal import Glibc
internal import Synchronization

/// The connection of a socket that is calling the delegate inline, so that the delegate's requests find it at
/// once.
struct CurrentCallback<Source: EventSource>: ~Copyable, Sendable {
    /// The thread; zero: none. A thread finds its own number here only while that connection delivers.
    private let thread = Atomic<pthread_t>(0)
    /// The address of the connection. It is alive while the thread is in the callback.
    private let connection = Atomic<UInt>(0)

    /// Before and after callbacks of `connection`. Never on two threads at a time: all connections of a
    /// socket deliver on its one loop, or on its queue.
    func open(for connection: Source) {
        self.connection.store(UInt(bitPattern: Unmanaged.passUnretained(connection).toOpaque()), ordering: .relaxed)
        thread.store(pthread_self(), ordering: .relaxed)
    }

    func close() {
        thread.store(0, ordering: .relaxed)
    }

    /// False, without having called `body`, outside a callback, or when the socket may have another
    /// connection by now.
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

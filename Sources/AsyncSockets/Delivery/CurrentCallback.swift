internal import Glibc
internal import Synchronization

/// The connection of a socket that is calling the delegate inline, so that the delegate's requests reach it
/// directly.
struct CurrentCallback<Source: EventSource>: ~Copyable, Sendable {
    /// The calling thread, or 0. A thread reads its own number here only while that connection delivers.
    private let thread = Atomic<pthread_t>(0)
    /// The address of the connection, which stays alive while the thread is in the callback.
    private let connection = Atomic<UInt>(0)

    /// Called before and after callbacks of `connection`, never on two threads simultaneously: all
    /// connections of a socket deliver on its one loop, or on its queue.
    func open(for connection: Source) {
        self.connection.store(UInt(bitPattern: Unmanaged.passUnretained(connection).toOpaque()), ordering: .relaxed)
        thread.store(pthread_self(), ordering: .relaxed)
    }

    func close() {
        thread.store(0, ordering: .relaxed)
    }

    /// Outside a callback, or if the socket may already have another connection, returns `false` without
    /// calling `body`.
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

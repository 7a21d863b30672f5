import AsyncSockets
import FoundationEssentials
import SocketTestSupport
import Synchronization

/// A delegate of a listener, of the sockets that it accepts, and of clients.
final class Party: AsyncSocketDelegate, Sendable {
    private let settings: TLSServerSettings?
    private let accepted = Mutex<[AsyncSocket]>([])
    private let ends: AsyncStream<AsyncSocketError?>
    private let continuation: AsyncStream<AsyncSocketError?>.Continuation

    /// - Parameter settings: Every accepted socket starts TLS with these settings. If nil, none does.
    init(securing settings: TLSServerSettings? = nil) {
        self.settings = settings
        (ends, continuation) = AsyncStream<AsyncSocketError?>.makeStream()
    }

    /// Waits for the end of another socket.
    func end() async -> AsyncSocketError? {
        for await error in ends { return error }
        return nil
    }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        accepted.withLock { $0.append(newSocket) }
        if let settings { try? newSocket.beginTLS(settings: settings) }
        newSocket.readData(to: Data("\n".utf8), withTimeout: .patient, tag: 0)
    }

    /// Servers echo a line. Clients disconnect.
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        guard tag == 0 else { return socket.disconnect() }
        socket.write(data, withTimeout: .patient, tag: 0)
        socket.readData(withTimeout: .patient, tag: 0)
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        continuation.yield(error)
    }
}

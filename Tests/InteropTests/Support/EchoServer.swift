import AsyncSockets
import FoundationEssentials
import SocketBuffers
import SocketTestSupport

/// An echo server, optionally with TLS, that records its clients' ports.
final class EchoServer: AsyncSocketDelegate, Sendable {
    private let listener = AsyncSocket()
    private let settings: TLSServerSettings?
    private let connections = Locked<[AsyncSocket]>([])
    private let endings = Locked<[AsyncSocketError?]>([])

    init(_ settings: TLSServerSettings? = nil) throws {
        self.settings = settings
        listener.setInlineDelegate(self)
        try listener.accept(onInterface: "localhost", port: 0)
    }

    var port: UInt16 { listener.localPort }

    /// The ports of its clients.
    var peers: [UInt16] { connections.withLock { $0.compactMap(\.connectedPort) } }

    /// The results of the connections that have ended so far.
    var ends: [AsyncSocketError?] { endings.withLock { $0 } }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        connections.withLock { $0.append(newSocket) }
        if let settings { try? newSocket.beginTLS(settings: settings) }
        newSocket.readData(withTimeout: -1, tag: 0)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        socket.write(data, withTimeout: .patient, tag: 0)
        socket.readData(withTimeout: -1, tag: 0)
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        endings.withLock { $0.append(error) }
    }
}

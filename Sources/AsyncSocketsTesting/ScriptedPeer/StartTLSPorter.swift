public import AsyncSockets
internal import Dispatch
public import FoundationEssentials
internal import SocketBuffers

/// A proxy that performs the plaintext part of SMTP's STARTTLS (RFC 3207) for a TLS-only server, such as
/// `openssl s_server`, and then forwards all bytes.
///
/// It listens on 127.0.0.1, at a port that the system chooses, and stops when it is deallocated.
public final class StartTLSPorter: AsyncSocketDelegate, Sendable {
    private struct Pair {
        let client: AsyncSocket
        var server: AsyncSocket?
    }

    private enum Tag {
        static let line = 0
        static let piece = 1
    }

    private let target: UInt16
    private let queue = DispatchQueue(label: "AsyncSocketsTesting.StartTLSPorter")
    private let listener: AsyncSocket
    private let pairs = Locked<[Pair]>([])

    /// Starts listening.
    ///
    /// - Parameter target: The TLS server's port on 127.0.0.1.
    /// - Throws: The error of `AsyncSocket.accept(onInterface:port:)`.
    public init(inFrontOf target: UInt16) throws(AsyncSocketError) {
        self.target = target
        listener = AsyncSocket()
        listener.setDelegate(self, delegateQueue: queue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
    }

    /// The port on which the proxy listens.
    public var port: UInt16 { listener.localPort }

    /// Sends the greeting to a new client.
    public func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        pairs.withLock { $0.append(Pair(client: newSocket)) }
        write("220 localhost ESMTP porter", to: newSocket)
        readLine(from: newSocket)
    }

    /// Responds to a line of plaintext, or forwards TLS data.
    public func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        if tag == Tag.line { return answer(data, on: socket) }
        partner(of: socket)?.write(data, withTimeout: -1, tag: 0)
        socket.readData(withTimeout: -1, tag: Tag.piece)
    }

    /// Closes the other connection of a pair after its pending writes are complete.
    public func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        partner(of: socket)?.disconnectAfterWriting()
    }

    private func answer(_ line: Data, on client: AsyncSocket) {
        guard line.starts(with: Data("STARTTLS".utf8)) else {
            write("250-localhost\r\n250 STARTTLS", to: client)
            return readLine(from: client)
        }
        let server = AsyncSocket(delegate: self, delegateQueue: queue)
        pairs.withLock { pairs in
            for index in pairs.indices where pairs[index].client === client { pairs[index].server = server }
        }
        do {
            try server.connect(toHost: "127.0.0.1", onPort: target, withTimeout: 10)
        } catch {
            return client.disconnect()
        }
        write("220 ready to start TLS", to: client)
        server.readData(withTimeout: -1, tag: Tag.piece)
        client.readData(withTimeout: -1, tag: Tag.piece)
    }

    private func partner(of socket: AsyncSocket) -> AsyncSocket? {
        pairs.withLock { pairs in
            for pair in pairs {
                if pair.client === socket { return pair.server }
                if pair.server === socket { return pair.client }
            }
            return nil
        }
    }

    private func write(_ line: String, to socket: AsyncSocket) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: 10, tag: 0)
    }

    private func readLine(from socket: AsyncSocket) {
        socket.readData(to: Data("\r\n".utf8), withTimeout: 10, maxLength: 512, tag: Tag.line)
    }
}

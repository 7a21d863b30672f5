internal import AsyncSockets
internal import Foundation

/// Speaks the plaintext part of STARTTLS for `openssl s_server`, which cannot, and then passes every byte on to it.
final class Porter: AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: used on `queue` only, where the delegate is called.
    private let screen: Screen
    private let target: UInt16
    private let queue = DispatchQueue(label: "porter")
    private let listener: AsyncSocket
    private var client: AsyncSocket?
    private let server: AsyncSocket

    init(screen: Screen, target: UInt16) throws {
        self.screen = screen
        self.target = target
        listener = AsyncSocket(delegateQueue: queue)
        server = AsyncSocket(delegateQueue: queue)
        listener.delegate = self
        server.delegate = self
        try listener.accept(onInterface: "127.0.0.1", port: 0)
    }

    var port: UInt16 { listener.localPort }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        client = newSocket
        write("220 localhost ESMTP porter", to: newSocket)
        readLine(from: newSocket)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        if tag == Tag.line { return answer(data, on: socket) }
        let other = socket === server ? client : server
        other?.write(data, withTimeout: -1, tag: 0)
        socket.readData(withTimeout: -1, tag: Tag.piece)
    }

    private func answer(_ line: Data, on socket: AsyncSocket) {
        guard line.starts(with: Data("STARTTLS".utf8)) else {
            write("250-localhost\r\n250 STARTTLS", to: socket)
            return readLine(from: socket)
        }
        write("220 ready to start TLS", to: socket)
        do {
            try server.connect(toHost: "127.0.0.1", onPort: target, withTimeout: 10)
        } catch {
            return socket.disconnect()
        }
        server.readData(withTimeout: -1, tag: Tag.piece)
        socket.readData(withTimeout: -1, tag: Tag.piece)
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        (socket === server ? client : server)?.disconnectAfterWriting()
    }

    private enum Tag {
        static let line = 0
        static let piece = 1
    }

    private func write(_ line: String, to socket: AsyncSocket) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: 10, tag: 0)
    }

    private func readLine(from socket: AsyncSocket) {
        socket.readData(to: Data("\r\n".utf8), withTimeout: 10, maxLength: 512, tag: Tag.line)
    }
}

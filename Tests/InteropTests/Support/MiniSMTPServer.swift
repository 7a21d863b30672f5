import AsyncSockets
import FoundationEssentials
import SocketBuffers
import SocketTestSupport

/// A minimal SMTP server that lets real clients upgrade and submit a mail (RFC 5321, RFC 3207).
final class MiniSMTPServer: AsyncSocketDelegate, Sendable {
    private let listener = AsyncSocket()
    private let settings: TLSServerSettings
    private let state = Locked(State())

    private struct State {
        var connections: [AsyncSocket] = []
        var lines: [String] = []
        var sessions: [TLSSession] = []
    }

    private enum Tag {
        static let command = 0
        static let mail = 1
    }

    init(_ settings: TLSServerSettings) throws {
        self.settings = settings
        listener.setInlineDelegate(self)
        try listener.accept(onInterface: "localhost", port: 0)
    }

    var port: UInt16 { listener.localPort }

    /// Every line that was received over TLS.
    var securedLines: [String] { state.withLock { $0.lines } }

    /// The session of every connection that became secure.
    var sessions: [TLSSession] { state.withLock { $0.sessions } }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        state.withLock { $0.connections.append(newSocket) }
        say("220 localhost ESMTP", to: newSocket)
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        if let session = socket.tlsSession { state.withLock { $0.sessions.append(session) } }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        let line = String(decoding: data, as: UTF8.self)
        if socket.isSecure { state.withLock { $0.lines.append(line) } }
        if tag == Tag.mail { return say("250 queued", to: socket) }
        switch line.prefix(4).uppercased() {
        case "EHLO": say(socket.isSecure ? "250 localhost" : "250-localhost\r\n250 STARTTLS", to: socket)
        case "STAR":
            say("220 go ahead", to: socket, reads: false)
            try? socket.beginTLS(settings: settings)
            socket.readData(to: .lineEnd, withTimeout: .patient, maxLength: 10_000, tag: Tag.command)
        case "DATA":
            say("354 go ahead", to: socket, reads: false)
            socket.readData(to: Data("\r\n.\r\n".utf8), withTimeout: .patient, maxLength: 100_000, tag: Tag.mail)
        case "QUIT":
            say("221 goodbye", to: socket, reads: false)
            socket.disconnectAfterWriting()
        default: say("250 ok", to: socket)
        }
    }

    private func say(_ line: String, to socket: AsyncSocket, reads: Bool = true) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: .patient, tag: 0)
        if reads { socket.readData(to: .lineEnd, withTimeout: .patient, maxLength: 10_000, tag: Tag.command) }
    }
}

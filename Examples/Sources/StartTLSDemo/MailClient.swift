internal import AsyncSockets
internal import Foundation
internal import Synchronization

/// A client that requests STARTTLS, upgrades, and then sends a secret.
///
/// Runs on its own queue. Locks protect the properties that the scenes read.
final class MailClient: AsyncSocketDelegate {
    /// The command whose reply is expected next.
    private enum Step: Int {
        case greeting, hello, startTLS, helloAgain, secret, goodbye
    }

    static let secret = "the password is swordfish"

    private let screen: Screen
    private let settings: TLSClientSettings
    private let socket = AsyncSocket()
    private var startedTLS = DispatchTime.now()
    let ending = Ending()
    let answers = Mutex<[String]>([])

    init(screen: Screen, settings: TLSClientSettings, port: UInt16) throws {
        self.screen = screen
        self.settings = settings
        socket.setDelegate(self, delegateQueue: DispatchQueue(label: "demo.client"))
        try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: 10)
        expect(.greeting)
    }

    var session: TLSSession? { socket.tlsSession }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        let line = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .newlines)
        answers.withLock { $0.append(line) }
        screen.step("client", "received \(line)  [\(socket.isSecure ? "encrypted" : "plaintext")]")
        guard let step = Step(rawValue: tag) else { return }
        // A hyphen after the code means that more lines follow (RFC 5321, section 4.2.1).
        if line.dropFirst(3).hasPrefix("-") { return expect(step) }
        goOn(after: step)
    }

    private func goOn(after step: Step) {
        switch step {
        case .greeting: say("EHLO client.example", expecting: .hello)
        case .hello: say("STARTTLS", expecting: .startTLS)
        case .startTLS:
            upgrade()
            say("EHLO client.example", expecting: .helloAgain)
        case .helloAgain: say("NOOP \(Self.secret)", expecting: .secret)
        case .secret: say("QUIT", expecting: .goodbye)
        case .goodbye: socket.disconnectAfterReadingAndWriting()
        }
    }

    private func upgrade() {
        startedTLS = .now()
        do {
            try socket.beginTLS(settings: settings)
        } catch {
            screen.step("client", "startTLS threw: \(error)")
            socket.disconnect()
        }
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        screen.step("client", "secure: \(socket.tlsSession?.summary ?? "") (handshake \(startedTLS.millisecondsAgo))")
        screen.step(
            "client",
            "the server is \(socket.tlsSession?.peerCertificates.first?.subject ?? "unknown"); its name was verified")
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        screen.step(
            "client",
            error.map { "disconnected: \($0.message) (\($0.tls?.code.description ?? $0.code.description))" } ?? "disconnected")
        ending.set(error)
    }

    private func say(_ line: String, expecting step: Step) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: 10, tag: 0)
        expect(step)
    }

    private func expect(_ step: Step) {
        // Replies end with \r\n, except those from `openssl s_server`.
        socket.readData(to: Data("\n".utf8), withTimeout: 10, maxLength: 1_000, tag: step.rawValue)
    }
}

internal import AsyncSockets
internal import Foundation
internal import Synchronization

/// A server that sends a plaintext greeting, upgrades on STARTTLS, and replies to a few SMTP commands (RFC
/// 5321, RFC 3207).
///
/// Runs on its own queue. Locks protect the properties that the scenes read.
final class MailServer: AsyncSocketDelegate {
    private let screen: Screen
    private let settings: TLSServerSettings
    private let listener = AsyncSocket()
    private var connection: AsyncSocket?
    private var startedTLS = DispatchTime.now()
    let ending = Ending()
    let commands = Mutex<[String]>([])

    init(screen: Screen, settings: TLSServerSettings) throws {
        self.screen = screen
        self.settings = settings
        listener.setDelegate(self, delegateQueue: DispatchQueue(label: "demo.server"))
        try listener.accept(onInterface: "127.0.0.1", port: 0)
    }

    var port: UInt16 { listener.localPort }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        connection = newSocket
        send("220 localhost ESMTP demo", to: newSocket)
        readLine(from: newSocket)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        let line = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .newlines)
        commands.withLock { $0.append(line) }
        screen.step("server", "received \(line)  [\(socket.isSecure ? "encrypted" : "plaintext")]")
        answer(line, on: socket)
    }

    private func answer(_ line: String, on socket: AsyncSocket) {
        switch line.prefix(4).uppercased() {
        case "EHLO":
            send(socket.isSecure ? "250 hello \(clientName(socket))" : "250-localhost\r\n250 STARTTLS", to: socket)
            readLine(from: socket)
        case "STAR" where !socket.isSecure: upgrade(socket)
        case "QUIT":
            send("221 goodbye", to: socket)
            socket.disconnectAfterWriting()
        default:
            send("250 \(String(line.reversed()))", to: socket)
            readLine(from: socket)
        }
    }

    private func upgrade(_ socket: AsyncSocket) {
        send("220 ready to start TLS", to: socket)
        startedTLS = .now()
        do {
            try socket.beginTLS(settings: settings)
        } catch {
            screen.step("server", "startTLS threw: \(error)")
            socket.disconnect()
        }
        readLine(from: socket)
    }

    func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void) {
        let subject = trust.chain.first?.subject ?? "none"
        screen.step("server", "evaluating the client's certificate: \(subject); OpenSSL's verdict: \(trust.verdict)")
        completionHandler(trust.chain.first?.commonName == "alice")
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        screen.step("server", "secure: \(socket.tlsSession?.summary ?? "") (handshake \(startedTLS.millisecondsAgo))")
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        guard socket === connection else { return }
        screen.step(
            "server",
            error.map { "disconnected: \($0.message) (\($0.tls?.code.description ?? $0.code.description))" } ?? "disconnected")
        ending.set(error)
    }

    private func clientName(_ socket: AsyncSocket) -> String {
        socket.tlsSession?.peerCertificates.first?.commonName ?? "stranger"
    }

    private func send(_ line: String, to socket: AsyncSocket) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: 10, tag: 0)
    }

    private func readLine(from socket: AsyncSocket) {
        socket.readData(to: Data("\r\n".utf8), withTimeout: 10, maxLength: 512, tag: 0)
    }
}

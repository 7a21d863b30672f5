import AsyncSockets
import Dispatch
import Foundation

/// The chat server. Everything runs on the main actor.
@MainActor
final class ChatServer {
    /// Timeouts and resource limits.
    struct Limits {
        var idleSeconds: Double
        var handshakeSeconds = 10.0
        var lineLength = 1_024
        var waitingByteCount = 64 << 10
        var connectionCount = 1_000
        var shutdownSeconds = 5.0
    }

    private let limits: Limits
    private let listener = AsyncSocket()
    private var settings: TLSServerSettings?
    /// All connections, including those that are still in the handshake.
    private var sockets: [ObjectIdentifier: AsyncSocket] = [:]
    private var members: [ObjectIdentifier: Member] = [:]
    private var isShuttingDown = false

    init(limits: Limits) {
        self.limits = limits
    }

    func start(onPort port: UInt16) throws {
        var settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key"))
        settings.clients = .certificates(.required)
        settings.trustRoots = .file(path: "clients.pem")
        settings.handshakeTimeout = .seconds(limits.handshakeSeconds)
        self.settings = settings
        // Accepted sockets inherit these.
        listener.writeHighWaterMark = limits.waitingByteCount
        listener.maximumConnections = limits.connectionCount
        listener.setDelegate(self)
        try listener.accept(onPort: port)
        log("listening on port \(listener.localPort)")
    }

    /// Stops accepting connections, sends the queued lines, and exits.
    func shutDown() {
        guard !isShuttingDown else { return }
        isShuttingDown = true
        log("shutting down")
        listener.disconnect()
        announce("*** the server is shutting down")
        for socket in sockets.values { socket.disconnectAfterWriting() }
        exitIfDone()
        DispatchQueue.main.asyncAfter(deadline: .now() + limits.shutdownSeconds) {
            MainActor.assumeIsolated {
                for socket in self.sockets.values { socket.disconnect() }
            }
        }
    }

    private func exitIfDone() {
        guard isShuttingDown, sockets.isEmpty else { return }
        log("done")
        exit(EXIT_SUCCESS)
    }

    private func announce(_ line: String, from sender: AsyncSocket? = nil) {
        for member in members.values where member.socket !== sender { member.tell(line) }
    }

    private func member(of socket: AsyncSocket) -> Member? {
        members[ObjectIdentifier(socket)]
    }

    private func readLine(from socket: AsyncSocket) {
        socket.readData(to: AsyncSocket.lf, withTimeout: limits.idleSeconds, maxLength: limits.lineLength)
    }
}

extension ChatServer: @MainActor AsyncSocketDelegate {
    func socket(_ listener: AsyncSocket, didAcceptNewSocket socket: AsyncSocket) {
        guard let settings, !isShuttingDown else { return }
        sockets[ObjectIdentifier(socket)] = socket
        do {
            try socket.beginTLS(settings: settings)
        } catch {
            log("cannot serve: \(error)")
            socket.disconnect()
        }
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        guard let name = socket.tlsSession?.peerCertificates.first?.commonName else { return socket.disconnect() }
        let member = Member(socket, name: name)
        members[ObjectIdentifier(socket)] = member
        log("\(name) joined")
        announce("*** \(name) joined", from: socket)
        member.tell("*** welcome, \(name); \(members.count) here")
        readLine(from: socket)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        guard let member = member(of: socket) else { return }
        let line = String(decoding: data, as: UTF8.self).filter { !$0.isNewline }
        announce("\(member.name): \(line)", from: socket)
        readLine(from: socket)
    }

    func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int) {
        guard let member = member(of: socket) else { return }
        log("\(member.name) is behind")
        member.fallBehind()
    }

    func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int) {
        guard let member = member(of: socket) else { return }
        log("\(member.name) has caught up")
        member.catchUp()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        sockets[ObjectIdentifier(socket)] = nil
        let reason = error.map { $0.isOrderlyEnd ? "" : ": \($0.localizedDescription)" } ?? ""
        if let member = members.removeValue(forKey: ObjectIdentifier(socket)) {
            log("\(member.name) left\(reason)")
            announce("*** \(member.name) left")
        } else if !reason.isEmpty {
            log("a connection failed\(reason)")
        }
        exitIfDone()
    }
}

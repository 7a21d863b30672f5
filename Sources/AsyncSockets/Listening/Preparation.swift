internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How an accepted connection becomes a socket that its task can use.
final class Preparation: Sendable {
    /// Every accepted socket gets its configuration, options and logger. It is never in use itself.
    let model: AsyncSocket
    /// The settings for the next connection; always nil without TLS.
    private let tls: Locked<TLSServerSettings?>
    private let hasTLS: Bool
    /// Handshakes, and the headers before them.
    let slots = HandshakeSlots(limit: 4096)
    let failures = FailureLog()
    private let trust: (@Sendable (PeerTrust) async throws -> Bool)?
    private let proxyProtocol: ProxyExpectation?

    init(
        model: AsyncSocket, tls: TLSServerSettings?, trust: (@Sendable (PeerTrust) async throws -> Bool)?,
        proxyProtocol: ProxyExpectation?
    ) throws(AsyncSocketError) {
        self.model = model
        self.proxyProtocol = proxyProtocol
        self.trust = trust
        hasTLS = tls != nil
        let checked = try tls.map { (settings) throws(AsyncSocketError) in try Self.check(settings, decides: trust != nil) }
        self.tls = Locked(checked)
    }

    /// Takes other settings for the connections to come.
    func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard hasTLS else {
            throw .badConfiguration("accept", "the listener was made without TLS: make one with the parameter tls")
        }
        let checked = try Self.check(settings, decides: trust != nil)
        // The old ones may hold objects of the user's, which run code when they go: not under the lock.
        let old = tls.withLock { tls in
            defer { tls = checked }
            return tls
        }
        withExtendedLifetime(old) {}
    }

    private static func check(_ tls: TLSServerSettings, decides: Bool) throws(AsyncSocketError) -> TLSServerSettings {
        guard decides || tls.trustEvaluation == .builtIn else {
            throw .badConfiguration(
                "accept", "the settings leave the certificates of clients to the program to decide about: pass trust")
        }
        try AsyncSocketError.check(tls.values)
        var tls = tls
        // Nothing comes in plaintext: what is there early is the handshake.
        tls.bytesBufferedAtUpgrade = .feedToTLS
        return tls
    }

    /// True when a socket is ready as soon as it is open.
    var isEmpty: Bool { !hasTLS && proxyProtocol == nil }

    /// A connected socket, in the task that will serve it.
    func open(_ accepted: AcceptedConnection, on loop: EventLoop) throws(AsyncSocketError) -> AsyncSocket {
        let socket = AsyncSocket(childOf: model, socketQueue: nil, loop: loop)
        try socket.prepare(accepted).begin(with: accepted.descriptor)
        return socket
    }

    /// All that comes before the first byte of the user, unless `isEmpty`.
    nonisolated(nonsending) func prepare(_ socket: AsyncSocket) async throws {
        await slots.enter()
        defer { slots.leave() }
        if let proxyProtocol { try await proxyProtocol.receiveHeader(on: socket) }
        guard let handshake = try askForTLS(on: socket) else { return }
        _ = try await handshake.session(trust)
    }

    @inline(never)
    private func askForTLS(on socket: AsyncSocket) throws -> AwaitedHandshake? {
        guard hasTLS, let tls = tls.withLock({ $0 }) else { return nil }
        return try socket.askForTLS(tls, hasTrust: trust != nil)
    }
}

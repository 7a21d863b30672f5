internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Turns an accepted connection into a socket that is ready for its task.
final class Preparation: Sendable {
    /// The model for accepted sockets, which copy its configuration, options and logger. It never connects.
    let model: AsyncSocket
    let tls: ListenerTLS?
    /// Slots for handshakes, including the PROXY headers before them.
    let slots = HandshakeSlots(limit: 4096)
    let failures = FailureLog()
    private let proxyProtocol: ProxyExpectation?

    init(model: AsyncSocket, tls: ListenerTLS?, proxyProtocol: ProxyExpectation?) {
        (self.model, self.tls, self.proxyProtocol) = (model, tls, proxyProtocol)
    }

    /// Whether a socket is ready as soon as it is open.
    var isEmpty: Bool { tls == nil && proxyProtocol == nil }

    /// Returns a connected socket. Called in the task that will serve the socket.
    func open(_ accepted: AcceptedConnection, on loop: SocketEventLoop) throws(AsyncSocketError) -> AsyncSocket {
        let socket = AsyncSocket(childOf: model, socketQueue: nil, loop: loop)
        try socket.prepare(accepted, awaitsTLS: tls != nil).begin(with: accepted.descriptor)
        return socket
    }

    /// Receives the PROXY header and performs the TLS handshake, if required. Not needed if `isEmpty`.
    nonisolated(nonsending) func prepare(_ socket: AsyncSocket, _ accepted: AcceptedConnection) async throws {
        if let proxyProtocol {
            let source = accepted.source(with: nil)
            await slots.enter(source)
            let trial = beginTrial(of: socket, source)
            defer { slots.leave(source, trial) }
            try await proxyProtocol.receiveHeader(on: socket)
            try charge(accepted, socket)
        }
        guard let tls else { return }
        let source = accepted.source(with: socket.proxyHeader)
        await slots.enter(source)
        let trial = beginTrial(of: socket, source)
        defer { slots.leave(source, trial) }
        _ = try await askForTLS(tls, on: socket).session(tls.trust)
    }

    private func beginTrial(of socket: AsyncSocket, _ source: SourceKey?) -> HandshakeTrial? {
        guard let source, let connection = socket.connection else { return nil }
        return slots.begin(connection, from: source)
    }

    /// Charges a connection from a proxy to its client. If the client has too many connections, the
    /// connection fails.
    @inline(never)
    private func charge(_ accepted: AcceptedConnection, _ socket: AsyncSocket) throws {
        guard let error = accepted.charge(to: socket.proxyHeader) else { return }
        socket.connection?.post(.fail(error))
        throw error
    }

    /// A separate function, because the task would otherwise hold a copy of the settings while it serves.
    @inline(never)
    private func askForTLS(_ tls: ListenerTLS, on socket: AsyncSocket) throws -> AwaitedHandshake<AsyncSocket> {
        try AwaitedHandshake.begin(tls.current, on: socket, hasTrust: tls.trust != nil)
    }
}

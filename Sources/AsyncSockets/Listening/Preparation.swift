internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How an accepted connection becomes a socket that its task can use.
final class Preparation: Sendable {
    /// Every accepted socket gets its configuration, options and logger. It is never in use itself.
    let model: AsyncSocket
    let tls: ListenerTLS?
    /// Handshakes, and the headers before them.
    let slots = HandshakeSlots(limit: 4096)
    let failures = FailureLog()
    private let proxyProtocol: ProxyExpectation?

    init(model: AsyncSocket, tls: ListenerTLS?, proxyProtocol: ProxyExpectation?) {
        (self.model, self.tls, self.proxyProtocol) = (model, tls, proxyProtocol)
    }

    /// True when a socket is ready as soon as it is open.
    var isEmpty: Bool { tls == nil && proxyProtocol == nil }

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
        guard let tls else { return }
        _ = try await askForTLS(tls, on: socket).session(tls.trust)
    }

    /// A separate function, because otherwise the task would hold a copy of the settings while it serves.
    @inline(never)
    private func askForTLS(_ tls: ListenerTLS, on socket: AsyncSocket) throws -> AwaitedHandshake {
        try socket.askForTLS(tls.current, hasTrust: tls.trust != nil)
    }
}

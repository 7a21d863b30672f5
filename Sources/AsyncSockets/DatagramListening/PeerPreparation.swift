internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A new peer that is not served by a task yet.
struct PeerArrival: Sendable {
    let socket: AsyncUDPSocket
    let connection: DatagramConnection
    let peer: SocketEndpoint

    init(_ made: (socket: AsyncUDPSocket, connection: DatagramConnection), _ peer: SocketEndpoint) {
        (socket, connection) = made
        self.peer = peer
    }
}

final class PeerPreparation: Sendable {
    /// The model for the configuration and the logger of every socket. It is never in use itself.
    let model: AsyncUDPSocket
    let tls: ListenerTLS?
    private let idleTimeout: Duration?
    private let failures = FailureLog()

    init(model: AsyncUDPSocket, tls: ListenerTLS?, idleTimeout: Duration?) {
        (self.model, self.tls, self.idleTimeout) = (model, tls, idleTimeout)
    }

    /// Creates the socket of a new peer. Called on the loop.
    func makeSocket(
        over channel: PeerChannel, to key: PeerKey, on loop: SocketEventLoop
    ) -> (socket: AsyncUDPSocket, connection: DatagramConnection) {
        let socket = AsyncUDPSocket()
        let connection = socket.serve(channel, to: key, like: model, on: loop)
        if let idleTimeout { connection.endWhenIdle(idleTimeout) }
        return (socket, connection)
    }

    /// Performs the handshake, if the listener uses DTLS. Returns false if it failed, after reporting the
    /// error.
    nonisolated(nonsending) func makeReady(
        _ arrival: PeerArrival, _ onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?
    ) async -> Bool {
        guard let tls else { return true }
        do {
            _ = try await askForDTLS(tls, on: arrival.socket).session(tls.trust)
            return true
        } catch {
            arrival.socket.disconnect()
            report(error, of: arrival, in: .handshake, onError)
            return false
        }
    }

    /// A separate function, because otherwise the task would hold a copy of the settings while it serves.
    @inline(never)
    private func askForDTLS(_ tls: ListenerTLS, on socket: AsyncUDPSocket) throws -> AwaitedHandshake<AsyncUDPSocket> {
        try socket.askForDTLS(tls.current, hasTrust: tls.trust != nil)
    }

    /// Reports a peer's error, unless the listener itself has cancelled the peer.
    func report(
        _ error: any Error, of arrival: PeerArrival, in stage: FailureLog.Stage,
        _ onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?
    ) {
        if error is CancellationError, Task.isCancelled { return }
        failures.note(error, of: arrival.peer, in: stage, isHandled: onError != nil, model.logger)
        onError?(error, arrival.socket)
    }
}

internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A peer, on its way to the task that serves it.
struct PeerArrival: Sendable {
    let socket: AsyncUDPSocket
    let connection: DatagramConnection
    let peer: SocketAddress

    init(_ made: (socket: AsyncUDPSocket, connection: DatagramConnection), _ peer: SocketAddress) {
        (socket, connection) = made
        self.peer = peer
    }
}

/// How a peer becomes a socket that its task can use.
final class PeerPreparation: Sendable {
    /// Every socket gets its configuration and logger. It is never in use itself.
    let model: AsyncUDPSocket
    private let dtls: TLSServerSettings?
    /// A task that looks at `dtls` itself would keep a copy of the settings until it ends.
    private let isSecure: Bool
    private let trust: (@Sendable (PeerTrust) async throws -> Bool)?
    private let idleTimeout: Duration?
    private let failures = FailureLog()

    init(
        model: AsyncUDPSocket, dtls: TLSServerSettings?, trust: (@Sendable (PeerTrust) async throws -> Bool)?,
        idleTimeout: Duration?
    ) throws(AsyncSocketError) {
        if let dtls {
            guard trust != nil || dtls.trustEvaluation == .builtIn else {
                throw .badConfiguration(
                    "bind", "the settings leave the certificates of clients to the program to decide about: pass trust")
            }
            try AsyncSocketError.check(dtls.values, over: .datagrams)
        }
        (self.model, self.dtls, self.trust, self.idleTimeout) = (model, dtls, trust, idleTimeout)
        isSecure = dtls != nil
    }

    /// On the loop: the socket of a new peer.
    func makeSocket(
        over channel: PeerChannel, to key: PeerKey, on loop: EventLoop
    ) -> (socket: AsyncUDPSocket, connection: DatagramConnection) {
        let socket = AsyncUDPSocket()
        let connection = socket.serve(channel, to: key, like: model, on: loop)
        if let idleTimeout { connection.endWhenIdle(idleTimeout) }
        return (socket, connection)
    }

    /// All that comes before the first datagram of the user. False when that has failed, which is reported.
    func makeReady(
        _ arrival: PeerArrival, _ onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?
    ) async -> Bool {
        guard isSecure else { return true }
        do {
            let handshake = try askForDTLS(on: arrival.socket)
            _ = try await handshake?.session(trust)
            return true
        } catch {
            arrival.socket.close()
            report(error, of: arrival, in: .handshake, onError)
            return false
        }
    }

    @inline(never)
    private func askForDTLS(on socket: AsyncUDPSocket) throws -> AwaitedDatagramHandshake? {
        guard let dtls else { return nil }
        return try socket.askForDTLS(dtls, hasTrust: trust != nil)
    }

    /// A peer has ended with an error, unless it was the listener that has ended it.
    func report(
        _ error: any Error, of arrival: PeerArrival, in stage: FailureLog.Stage,
        _ onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?
    ) {
        if error is CancellationError, Task.isCancelled { return }
        failures.note(error, of: arrival.peer, in: stage, isHandled: onError != nil, model.logger)
        onError?(error, arrival.socket)
    }
}

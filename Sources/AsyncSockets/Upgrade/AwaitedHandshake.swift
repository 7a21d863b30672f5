internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A handshake started by a task that waits for the result. Kept small, because a task never shrinks its
/// memory.
struct AwaitedHandshake {
    let operation: AsyncSocketError.Operation
    let waiter: HandshakeWaiter
    let limit: OperationLimit
    let connection: StreamConnection
    let socket: AsyncSocket

    /// Waits for the handshake to complete, calling `trust` if a decision is needed.
    nonisolated(nonsending) func session(
        _ trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) async throws -> CopyOnWrite<TLSSession> {
        let session = try await waiter.session(operation, limit, from: connection, trust) { [weak connection] in
            connection?.post(.upgrading($0))
        }
        if let session { return session }
        socket.disconnect(.abandoned)
        throw AsyncSocketError.badConfiguration(operation, "the TLS handshake did not produce a session")
    }

    /// Starts an upgrade for a task. A separate function, so that the suspended task does not keep the
    /// settings in memory. If this throws, the connection is closed, unless the socket is not in use or TLS
    /// was already started on it.
    @inline(never)
    static func begin(
        _ settings: TLSSettings<some TLSRole.Side>, on socket: AsyncSocket, hasTrust: Bool,
        _ makeDialogue: DialogueRequest.Maker = { nil }
    ) throws -> AwaitedHandshake {
        let limit = OperationLimit(nil)
        do {
            try limit.check(.startTLS)
        } catch {
            // Later bytes must not be sent in plaintext.
            socket.disconnect()
            throw error
        }
        guard let connection = socket.connection else { throw AsyncSocket.notInUse(.startTLS) }
        var settings = settings.values
        if hasTrust, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        guard hasTrust || settings.trustEvaluation == .builtIn || socket.hasDelegate else {
            let error = AsyncSocketError.badConfiguration(
                .startTLS, "the settings require a trust decision, but no callback is set: pass trust or set a delegate")
            connection.post(.fail(error))
            throw error
        }
        let waiter = HandshakeWaiter(.startTLS, limit)
        try TLSRequest.post(
            settings, to: connection, waiter: waiter, decidesTrust: hasTrust, waitsForNoTask: true, makeDialogue)
        return AwaitedHandshake(operation: .startTLS, waiter: waiter, limit: limit, connection: connection, socket: socket)
    }

    /// Starts an operation other than the upgrade itself, for a task.
    ///
    /// - Parameter message: Returns the message for the connection.
    @inline(never)
    static func begin(
        _ operation: AsyncSocketError.Operation, on socket: AsyncSocket, _ message: (HandshakeWaiter) -> ConnectionMessage
    ) throws -> AwaitedHandshake {
        let limit = OperationLimit(nil)
        try limit.check(operation)
        guard let connection = socket.connection else { throw AsyncSocket.notInUse(operation) }
        let waiter = HandshakeWaiter(operation, limit)
        connection.post(message(waiter))
        return AwaitedHandshake(operation: operation, waiter: waiter, limit: limit, connection: connection, socket: socket)
    }
}

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A socket that a task upgrades: `AsyncSocket` or `AsyncUDPSocket`.
protocol UpgradableSocket: AnyObject, Sendable {
    associatedtype Connection: OperationOwner
    static func post(_ news: UpgradeNews, to connection: Connection)
    /// Closes the socket, because its upgrade has failed.
    func abandonUpgrade()
}

/// A handshake started by a task that waits for the result. Kept small, because a task never shrinks its
/// memory.
struct AwaitedHandshake<Socket: UpgradableSocket> {
    let operation: AsyncSocketError.Operation
    let waiter: HandshakeWaiter
    let limit: OperationLimit
    let connection: Socket.Connection
    let socket: Socket

    /// Waits for the handshake to complete, calling `trust` if a decision is needed.
    nonisolated(nonsending) func session(
        _ trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) async throws -> CopyOnWrite<TLSSession> {
        let session = try await waiter.session(operation, limit, from: connection, trust) { [weak connection] news in
            if let connection { Socket.post(news, to: connection) }
        }
        if let session { return session }
        socket.abandonUpgrade()
        throw AsyncSocketError.badConfiguration(operation, "the TLS handshake did not produce a session")
    }
}

extension TLSSettingValues {
    /// Returns the settings of an upgrade by a task, whose closure decides whether to trust the peer if
    /// `hasTrust` is set. Throws if the settings require a decision that cannot be made.
    func forTask(
        hasTrust: Bool, hasDelegate: Bool, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> TLSSettingValues {
        var settings = self
        if hasTrust, trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        guard hasTrust || hasDelegate || trustEvaluation == .builtIn else {
            throw .badConfiguration(
                operation, "the settings require a trust decision, but no callback is set: pass trust or set a delegate")
        }
        return settings
    }
}

extension AwaitedHandshake<AsyncSocket> {
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
        let values: TLSSettingValues
        do {
            values = try settings.values.forTask(hasTrust: hasTrust, hasDelegate: socket.hasDelegate, .startTLS)
        } catch {
            connection.post(.fail(error))
            throw error
        }
        let waiter = HandshakeWaiter(.startTLS, limit)
        try TLSRequest.post(
            values, to: connection, waiter: waiter, decidesTrust: hasTrust, waitsForNoTask: true, makeDialogue)
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

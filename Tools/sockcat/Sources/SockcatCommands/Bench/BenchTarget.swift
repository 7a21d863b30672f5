internal import AsyncSockets

/// The server that a run measures, and how to connect to it.
struct BenchTarget: Sendable {
    let endpoint: Endpoint
    let plan: TLSClientPlan?
    let startTLS: StartTLSName?
    let timeout: Duration
    /// Whether to close connections with a reset, which frees the local ports immediately.
    let resets: Bool

    /// Connects, calls `body` with the plaintext connection, and closes it without a reply of the server.
    nonisolated(nonsending) func withConnection(
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Void
    ) async throws {
        if let address = endpoint.unixAddress {
            try await AsyncSocket.withConnection(to: address, timeout: timeout) { try await closing($0, body) }
        } else if case .host(let host, let port) = endpoint {
            try await AsyncSocket.withConnection(to: host, port: port, timeout: timeout) { try await closing($0, body) }
        }
    }

    private nonisolated(nonsending) func closing(
        _ socket: AsyncSocket, _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Void
    ) async throws {
        defer { socket.disconnect() }
        if resets { try socket.setOption(.linger, to: .zero) }
        try await body(socket)
    }

    /// Secures a connection as the options require. Returns `nil` if the options require no TLS.
    nonisolated(nonsending) func secure(_ socket: AsyncSocket) async throws -> TLSSession? {
        guard let plan else { return nil }
        if let startTLS { return try await startTLS.startTLS(on: socket, host: endpoint.hostName ?? "", plan) }
        return try await socket.startTLS(settings: plan.settings, trust: plan.trust)
    }

    /// Returns the same target, with connections that resume `session`.
    func resuming(_ session: TLSResumableSession) -> BenchTarget {
        var plan = plan
        plan?.settings.resumption = .session(session)
        return BenchTarget(endpoint: endpoint, plan: plan, startTLS: startTLS, timeout: timeout, resets: resets)
    }

    /// Performs a handshake, and throws if the server rejects the client afterwards. In TLS 1.3, a server
    /// verifies the client's certificate when the client's side of the handshake is already complete.
    func checkAcceptance() async throws {
        try await withConnection { socket in
            _ = try await secure(socket)
            socket.closeWriteStream()
            do {
                _ = try await socket.read(timeout: .seconds(1))
            } catch let error as AsyncSocketError {
                if error.tls?.code == .peerAlert { throw error }
            }
        }
    }

    /// Performs a full handshake, and returns the session that the server offers.
    func session() async throws -> TLSResumableSession? {
        let collector = SessionCollector()
        var plan = plan
        plan?.settings.resumption = .store(collector)
        let target = BenchTarget(endpoint: endpoint, plan: plan, startTLS: startTLS, timeout: timeout, resets: resets)
        var session: TLSResumableSession?
        try await target.withConnection { socket in
            _ = try await target.secure(socket)
            session = await collector.session(on: socket, within: .seconds(1))
        }
        return session
    }
}

internal import AsyncSockets

/// The server that a run measures, and how to connect to it.
struct BenchTarget: Sendable {
    let endpoint: Endpoint
    var plan: TLSClientPlan?
    let startTLS: StartTLSName?
    /// Whether to use DTLS instead of TLS.
    let isDatagram: Bool
    let timeout: Duration
    /// Whether to close connections with a reset, which frees the local ports immediately.
    let resets: Bool
    /// Whether a measured handshake is complete only after the server has accepted the client.
    var awaitsVerdict = false
    private var resumes = false

    init(
        endpoint: Endpoint, plan: TLSClientPlan?, startTLS: StartTLSName?, isDatagram: Bool, timeout: Duration, resets: Bool
    ) {
        (self.endpoint, self.plan, self.startTLS, self.isDatagram) = (endpoint, plan, startTLS, isDatagram)
        (self.timeout, self.resets) = (timeout, resets)
    }

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
        return try await secure(socket, plan)
    }

    private nonisolated(nonsending) func secure(_ socket: AsyncSocket, _ plan: TLSClientPlan) async throws -> TLSSession {
        if let startTLS { return try await startTLS.startTLS(on: socket, host: endpoint.hostName ?? "", plan) }
        return try await socket.startTLS(settings: plan.settings, trust: plan.trust)
    }

    /// Returns the same target, with connections that resume `session`.
    func resuming(_ session: TLSResumableSession) -> BenchTarget {
        var target = self
        target.plan?.settings.resumption = .session(session)
        target.resumes = true
        return target
    }

    // MARK: - The server's decision about the client

    /// Performs a handshake, and throws if the server refuses the client. Returns the target with
    /// `awaitsVerdict` set if the server confirms that it accepts the client.
    func checked(_ reporter: Reporter) async throws -> BenchTarget {
        guard plan != nil else { return self }
        if isDatagram {
            try await withDatagrams { _, _, _ in }
            return self
        }
        var target = self
        try await withConnection { socket in
            var isRequested = false
            let verdict = try await secureAndConfirm(socket) { isRequested = $0.clientCertificateRequest != nil }
            target.awaitsVerdict = isRequested && verdict == .accepted
            if verdict == .notConfirmed {
                reporter.warn("the server has not confirmed that it accepts the client: refused handshakes may be counted")
            }
        }
        return target
    }

    /// Secures a connection, calls `body` when the client's handshake is complete, and returns the server's
    /// decision: see `ServerVerdict`.
    nonisolated(nonsending) func secureAndConfirm(
        _ socket: AsyncSocket, _ body: (TLSSession) -> Void
    ) async throws -> ServerVerdict {
        guard var plan else { return .accepted }
        let collector = SessionCollector()
        if !resumes { plan.settings.resumption = .store(collector) }
        let session = try await secure(socket, plan)
        body(session)
        let hasIdentity = plan.settings.identity != nil
        return try await ServerVerdict.arrives(
            on: socket, session, collector, command: hasIdentity ? startTLS?.harmlessCommand : nil, hasIdentity: hasIdentity,
            within: timeout)
    }

    /// Performs a full handshake, and returns the session that the server offers.
    func session() async throws -> TLSResumableSession? {
        let collector = SessionCollector()
        var target = self
        target.plan?.settings.resumption = .store(collector)
        if isDatagram {
            try await target.withDatagrams { _, _, _ in }
            return collector.latest
        }
        var session: TLSResumableSession?
        try await target.withConnection { [target] socket in
            _ = try await target.secure(socket)
            session = await collector.session(on: socket, within: .seconds(1))
        }
        return session
    }
}

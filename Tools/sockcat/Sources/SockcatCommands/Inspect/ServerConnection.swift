internal import AsyncSockets
internal import Synchronization

/// The choices that apply to every connection of an inspection.
struct InspectionChoices: Sendable {
    var trustRoots = TLSTrustRoots.system
    var identity: TLSIdentity?
    var applicationProtocols: [String] = []
    var pins: Set<[UInt8]> = []
    var dane = DANEChoice.none
    var timeout = Duration.seconds(10)
    /// A certificate that expires within this many days is a problem.
    var days = 14
    /// Whether to test versions, cipher suites and resumption, which takes more connections.
    var probes = true
    /// Whether to verify the chains in files, rather than to list their certificates only.
    var verifiesFiles = false
    /// The name that the first certificate in a file must have. `nil` accepts any name.
    var fileServerName: String?
    /// The limits on what a connection may negotiate. Tests of versions and cipher suites have none.
    var limits = TLSLimits()
}

/// Opens the connections of an inspection. After the server has refused one connection, no more are opened.
struct ServerConnection: Sendable {
    let target: ServerTarget
    let choices: InspectionChoices
    let evidence: DANEEvidence
    private let refusal = ServerRefusal()

    init(target: ServerTarget, choices: InspectionChoices, evidence: DANEEvidence = DANEEvidence()) {
        (self.target, self.choices, self.evidence) = (target, choices, evidence)
    }

    /// The TLSA records that the server must match, if any.
    var records: ServerRecords? { evidence.records }

    /// The client's identity, unless the server is known to be untrusted.
    var identity: TLSIdentity? { evidence.permitsTrust ? choices.identity : nil }

    /// Settings that accept every certificate, so that invalid certificates can be reported. With records,
    /// the server must match. The settings contain no identity: see `handshake(_:_:_:)`.
    func settings(_ records: ServerRecords? = nil) throws -> TLSClientSettings {
        guard let name = records?.baseDomain ?? target.expectedName else {
            throw Failure.usage("\"\(target)\" has no host name", advice: "pass the expected name with --sni")
        }
        var settings = TLSSettings.client(serverName: name)
        settings.trustRoots = choices.trustRoots
        settings.trustEvaluation = records == nil ? .manual : .delegate
        settings.policy = .compatible
        choices.limits.apply(to: &settings)
        settings.applicationProtocols = choices.applicationProtocols
        settings.resumption = .none
        settings.handshakeTimeout = choices.timeout
        return settings
    }

    /// Connects and performs a handshake, with STARTTLS or over datagrams if the target requires it. Then
    /// calls `body`, which the time limit does not cover. Over datagrams, it receives no socket.
    ///
    /// Only this function gives a connection the client's identity, and `decision` then rejects servers that
    /// are not trusted.
    ///
    /// - Parameter connected: Called with the server's address before the handshake.
    func handshake<Result: Sendable>(
        _ settings: TLSClientSettings, _ decision: TrustDecision,
        connected: @escaping @Sendable (SocketEndpoint?) -> Void = { _ in },
        _ body: @escaping @Sendable (AsyncSocket?, TLSSession) async throws -> Result
    ) async throws -> Result {
        var settings = settings
        settings.identity = decision.presentsIdentity ? identity : nil
        if target.isDatagram { return try await handshakeOverDatagrams(settings, decision, connected, body) }
        let (ready, end) = (settings, ContinuousClock.now + choices.timeout)
        return try await connection { socket in
            connected(socket.connectedAddress)
            let session = try await withDeadline(max(.zero, end - ContinuousClock.now)) {
                if let startTLS = target.startTLS {
                    try await startTLS.startTLS(
                        on: socket, host: target.domain ?? "", settings: ready, trust: { decision.decide($0) })
                } else {
                    try await socket.startTLS(settings: ready, trust: { decision.decide($0) })
                }
            }
            return try await body(socket, session)
        }
    }

    private func handshakeOverDatagrams<Result: Sendable>(
        _ settings: TLSClientSettings, _ decision: TrustDecision, _ connected: @escaping @Sendable (SocketEndpoint?) -> Void,
        _ body: @escaping @Sendable (AsyncSocket?, TLSSession) async throws -> Result
    ) async throws -> Result {
        guard case .host(let host, let port) = target.endpoint else {
            throw Failure.usage("\(target.endpoint) is not a UDP address", advice: "pass a host and a port")
        }
        try refusal.check()
        do {
            return try await AsyncUDPSocket.withConnection(
                to: host, port: port, timeout: choices.timeout, executor: nil,
                configure: { $0.failsHandshakeOnDeliveryFailure = true }
            ) { socket in
                connected(socket.connectedAddress)
                return try await body(nil, socket.startDTLS(settings: settings, trust: { decision.decide($0) }))
            }
        } catch {
            refusal.note(error, isProbe: false, usesStartTLS: false)
            throw error
        }
    }

    /// Connects and sends an offer without performing a handshake, after STARTTLS if the target requires it.
    func probe(_ probe: TLSProbe) async throws -> TLSProbe.Reply {
        let reply = try await withDeadline(choices.timeout) {
            try await connection(isProbe: true) { socket in
                if let startTLS = target.startTLS {
                    try await startTLS.reply(
                        to: probe, over: socket, host: target.domain ?? "", timeout: choices.timeout)
                } else {
                    try await probe.reply(over: socket, timeout: choices.timeout)
                }
            }
        }
        refusal.note(reply)
        return reply
    }

    private func connection<Result>(
        isProbe: Bool = false, _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        try refusal.check()
        do {
            return try await open(body)
        } catch {
            refusal.note(error, isProbe: isProbe, usesStartTLS: target.startTLS != nil)
            throw error
        }
    }

    private func open<Result>(
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        switch target.endpoint {
        case .host(let host, let port):
            try await AsyncSocket.withConnection(to: host, port: port, timeout: choices.timeout) { socket in
                try await Self.closingImmediately(socket, body)
            }
        case .unix(let path):
            try await AsyncSocket.withConnection(to: Self.address(path), timeout: choices.timeout) { socket in
                try await Self.closingImmediately(socket, body)
            }
        }
    }

    private static func address(_ path: String) throws -> SocketEndpoint {
        guard let address = Endpoint.unix(path).unixAddress else {
            throw Failure.usage("\"\(path)\" is not the path of a Unix-domain socket")
        }
        return address
    }

    /// Closes the connection without waiting for the server, which may be waiting for a request.
    private nonisolated(nonsending) static func closingImmediately<Result>(
        _ socket: AsyncSocket, _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        defer { socket.disconnect() }
        return try await body(socket)
    }
}

/// Records the certificates of a server and OpenSSL's verdict, and decides whether the handshake continues.
final class TrustDecision: Sendable {
    /// Whether the client presents its certificate. If so, a server that is not trusted is rejected before
    /// the client's certificate is sent. Otherwise, every server is accepted.
    let presentsIdentity: Bool
    private let pins: Set<[UInt8]>
    private let value = Mutex<PeerTrust?>(nil)

    init(presentsIdentity: Bool = false, pins: Set<[UInt8]> = []) {
        (self.presentsIdentity, self.pins) = (presentsIdentity, pins)
    }

    var trust: PeerTrust? { value.withLock { $0 } }

    /// A server is trusted if its chain is, or if its own key is pinned. A pin of another key in an untrusted
    /// chain is no proof. (The settings require that a trusted chain contains a pinned key, if pins are
    /// given.)
    func decide(_ trust: PeerTrust) -> Bool {
        value.withLock { $0 = trust }
        return !presentsIdentity || trust.verdict == .trusted || trust.leaf.map { pins.contains($0.publicKeySHA256) } == true
    }
}

/// Whether a server has refused a connection, for example because it blocks the client. This is different
/// from the rejection of an offer, which is the result of a test.
final class ServerRefusal: Sendable {
    private let state = Atomic(false)

    /// Throws if a connection was refused.
    fileprivate func check() throws {
        guard !state.load(ordering: .relaxed) else {
            throw Failure("the server has refused an earlier connection", status: .connectFailed)
        }
    }

    fileprivate func note(_ error: any Error, isProbe: Bool, usesStartTLS: Bool) {
        let isClosed = !isProbe && Self.isClosedWithoutReply(error)
        if isClosed || Self.isRefusal(error, usesStartTLS: usesStartTLS) { state.store(true, ordering: .relaxed) }
    }

    fileprivate func note(_ reply: TLSProbe.Reply) {
        let isRefusal =
            switch reply {
            case .accepted: false
            case .rejected(let alert): Self.isRefusal(alert)
            case .notTLS: true
            }
        if isRefusal { state.store(true, ordering: .relaxed) }
    }

    /// Alerts that do not concern the offered versions and cipher suites.
    static func isRefusal(_ alert: TLSAlert) -> Bool { [.accessDenied, .unrecognizedName, .userCanceled].contains(alert) }

    /// Everything except a TLS failure, and the end of a connection to which the server may have replied with
    /// an alert.
    static func isRefusal(_ error: any Error, usesStartTLS: Bool) -> Bool {
        guard let error = error as? AsyncSocketError else { return !(error is Failure) }
        if let tls = error.tls { return tls.code == .notTLS || tls.alert.map { isRefusal($0) } == true }
        switch error.code {
        case .closedByPeer: return false
        // After STARTTLS, the reset may be the reply to the protocol's commands.
        case .connectionReset: return usesStartTLS
        default: return true
        }
    }

    /// Modern servers send an alert. A server that closes the first handshake without an alert refuses the
    /// client.
    private static func isClosedWithoutReply(_ error: any Error) -> Bool {
        guard let error = error as? AsyncSocketError else { return false }
        guard let tls = error.tls else { return [.closedByPeer, .connectionReset].contains(error.code) }
        return tls.code == .closedDuringHandshake && tls.clientCertificateRequest == nil
    }
}

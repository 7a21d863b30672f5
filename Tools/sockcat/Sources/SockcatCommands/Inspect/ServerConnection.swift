internal import AsyncSockets
internal import Synchronization

/// The choices that apply to every connection of an inspection.
struct InspectionChoices: Sendable {
    var trustRoots = TLSTrustRoots.system
    var identity: TLSIdentity?
    var applicationProtocols: [String] = []
    var pins: Set<[UInt8]> = []
    var timeout = Duration.seconds(10)
    /// A certificate that expires within this many days is a problem.
    var days = 14
    /// Whether to test versions, cipher suites and resumption, which takes about 15 connections.
    var probes = true
}

/// Opens the connections of an inspection. Each connection sends nothing but handshakes.
struct ServerConnection: Sendable {
    let target: ServerTarget
    let choices: InspectionChoices

    /// Settings that accept every certificate, so that invalid certificates can be reported. No data is sent.
    func settings() throws -> TLSClientSettings {
        guard let name = target.expectedName else {
            throw Failure.usage("\"\(target)\" has no host name", advice: "pass the expected name with --sni")
        }
        var settings = TLSSettings.client(serverName: name)
        settings.trustRoots = choices.trustRoots
        settings.trustEvaluation = .manual
        settings.policy = .compatible
        settings.identity = choices.identity
        settings.applicationProtocols = choices.applicationProtocols
        settings.resumption = .none
        settings.handshakeTimeout = choices.timeout
        return settings
    }

    /// Connects and performs a handshake, with STARTTLS if the target requires it.
    func handshake<Result: Sendable>(
        _ settings: TLSClientSettings, trust: @escaping @Sendable (PeerTrust) async throws -> Bool = { _ in true },
        _ body: @escaping @Sendable (AsyncSocket, TLSSession) async throws -> Result
    ) async throws -> Result {
        try await withDeadline(choices.timeout) {
            try await connection { socket in
                let session =
                    if let startTLS = target.startTLS {
                        try await startTLS.startTLS(
                            on: socket, host: target.expectedName ?? "", settings: settings, trust: trust)
                    } else {
                        try await socket.startTLS(settings: settings, trust: trust)
                    }
                return try await body(socket, session)
            }
        }
    }

    /// Connects and sends an offer without performing a handshake, after STARTTLS if the target requires it.
    func probe(_ probe: TLSProbe) async throws -> TLSProbe.Reply {
        try await withDeadline(choices.timeout) {
            try await connection { socket in
                if let startTLS = target.startTLS {
                    try await startTLS.reply(
                        to: probe, over: socket, host: target.expectedName ?? "", timeout: choices.timeout)
                } else {
                    try await probe.reply(over: socket, timeout: choices.timeout)
                }
            }
        }
    }

    private func connection<Result>(
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

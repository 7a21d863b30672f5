internal import AsyncSockets
internal import Foundation

/// Forwards one accepted connection at a time to its target.
struct RelayLink: Sendable {
    let routes: RouteTable
    let acceptedStartTLS: StartTLSName?
    /// The settings for accepted connections, if they use TLS.
    let settings: ReloadingSettings?
    let target: RelayTargetOptions
    /// The settings for targets, if they use TLS.
    let plan: TLSClientPlan?
    let limits: RelayLimits
    let reporter: Reporter

    func serve(_ client: AsyncSocket) async throws {
        guard let (endpoint, start) = try await destination(of: client) else { return }
        if let acceptedStartTLS, let settings {
            _ = try await acceptedStartTLS.acceptStartTLS(on: client, host: "localhost", settings.current())
        }
        let server = AsyncSocket()
        do {
            try await withDeadline(limits.timeout.duration) { try await connect(server, to: endpoint, for: client) }
            if !start.isEmpty { try await server.write(start) }
            reporter.detail("\(client.originalAddress.text) is forwarded to \(endpoint)")
            let totals = try await client.relay(with: server, idleTimeout: limits.idleTimeout.duration)
            reporter.detail(
                "\(client.originalAddress.text) closed: \(totals.forwarded) bytes forwarded, \(totals.returned) bytes returned")
            try await server.close()
        } catch {
            server.disconnect()
            client.disconnectWithReset()
            throw error
        }
    }

    // MARK: - Routing

    /// Returns the target of a client and the bytes that were read to find it. Returns `nil` if the client
    /// was rejected.
    private func destination(of client: AsyncSocket) async throws -> (Endpoint, Data)? {
        guard routes.isByName else { return routes.target(for: nil).map { ($0, Data()) } }
        guard let start = try await client.readFrame(TLSClientHelloFraming(), timeout: limits.timeout.duration) else {
            return nil
        }
        let name = start.hello.serverName
        if let endpoint = routes.target(for: name) { return (endpoint, start.bytes) }
        reporter.note(
            "\(client.originalAddress.text): no route for \(name.map { "the name \"\($0)\"" } ?? "clients without a name")")
        try await client.write(Self.unrecognizedName)
        return nil
    }

    /// A TLS record with the fatal alert unrecognized_name (RFC 6066, section 3).
    private static let unrecognizedName: [UInt8] = [21, 3, 3, 0, 2, 2, 112]

    // MARK: - Connecting

    private func connect(_ server: AsyncSocket, to endpoint: Endpoint, for client: AsyncSocket) async throws {
        switch endpoint {
        case .host(let host, let port):
            try await server.connect(to: host, port: port, proxy: target.toProxy?.proxy, timeout: nil)
        case .unix:
            guard let address = endpoint.unixAddress else { throw Failure.usage("\(endpoint) is not an address") }
            try await server.connect(to: address, timeout: nil)
        }
        if let version = target.proxyOut?.version { try await server.write(header(of: client, version), as: version) }
        try await secure(server, endpoint)
        try await alignGreetings(client, server)
    }

    private func secure(_ server: AsyncSocket, _ endpoint: Endpoint) async throws {
        guard let plan else { return }
        if let name = target.toStarttls {
            _ = try await name.startTLS(on: server, host: target.toSni ?? endpoint.hostName ?? "localhost", plan)
        } else {
            try await server.startTLS(settings: plan.settings, trust: plan.trust)
        }
    }

    /// Returns the addresses of the client, as the first proxy saw them.
    private func header(of client: AsyncSocket, _ version: ProxyHeader.Version) -> ProxyHeader {
        let header = client.proxyHeader ?? Self.header(of: client)
        let reduced = header.reduced(to: version)
        if reduced != header { reporter.detail("PROXY protocol version 1 cannot describe \(header): parts were omitted") }
        return reduced
    }

    private static func header(of client: AsyncSocket) -> ProxyHeader {
        guard let source = client.connectedAddress, let destination = client.localAddress, source.family == destination.family
        else {
            return .unknown
        }
        return ProxyHeader(source: source, destination: destination)
    }

    /// The STARTTLS dialogue includes the greeting. If only one side uses STARTTLS, the client would
    /// otherwise receive two greetings, or no greeting.
    private func alignGreetings(_ client: AsyncSocket, _ server: AsyncSocket) async throws {
        switch (acceptedStartTLS, target.toStarttls) {
        case (nil, nil), (.some, .some): break
        case (let accepted?, nil): try await StartTLSGreeting(accepted)?.discard(from: server)
        case (nil, let requested?):
            if let greeting = StartTLSGreeting(requested) { try await client.write(greeting.text) }
        }
    }
}

internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

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

    /// Serves a client.
    ///
    /// After a failure, the client's connection is reset, so that the client does not mistake the failure for
    /// the end of the target's data. Unix-domain sockets cannot be reset: a client with TLS detects a
    /// truncation there, but a client without TLS reads the end of the stream.
    func serve(_ client: AsyncSocket) async throws {
        do {
            guard let (endpoint, start) = try await accept(client) else { return }
            try await forward(client, to: endpoint, start)
        } catch {
            client.disconnectWithReset()
            throw error
        }
    }

    /// Returns the target of a client and the bytes that were read to find it, after the client has been
    /// upgraded to TLS. Returns `nil` if the client was rejected.
    private func accept(_ client: AsyncSocket) async throws -> (Endpoint, Data)? {
        guard let destination = try await destination(of: client) else { return nil }
        if let acceptedStartTLS, let settings {
            _ = try await acceptedStartTLS.acceptStartTLS(on: client, host: "localhost", settings.current())
        }
        return destination
    }

    private func forward(_ client: AsyncSocket, to endpoint: Endpoint, _ start: Data) async throws {
        let server = AsyncSocket()
        do {
            try await withDeadline(limits.timeout.duration) { try await connect(server, to: endpoint, for: client) }
            if !start.isEmpty { try await RelayStepFailure.of(.target) { try await server.write(start) } }
            reporter.detail("\(client.originalAddress.text) is forwarded to \(endpoint)")
            let totals = try await relay(client, server)
            reporter.detail(
                "\(client.originalAddress.text) closed: \(totals.forwarded) bytes forwarded, \(totals.returned) bytes returned")
            try await RelayStepFailure.of(.target) { try await server.close() }
        } catch {
            server.disconnectWithReset()
            guard let failure = error as? RelayStepFailure else { throw error }
            throw described(
                failure, RelayAddressTexts(client: client, target: endpoint, server: server, proxy: proxy(for: endpoint)))
        }
    }

    private func described(_ failure: RelayStepFailure, _ addresses: RelayAddressTexts) -> RelayFailure {
        var message = Failure(failure.cause).message
        // The dialogue and the handshake have the same limit, which can expire first on a busy machine.
        if let error = failure.cause as? AsyncSocketError, [.deadlineExceeded, .handshakeTimeout].contains(error.code) {
            message = "\(error.operation.name): timed out after \(limits.timeout) (--timeout)"
        }
        return RelayFailure(message: "\(addresses.name(of: failure.side)): \(message)")
    }

    private func relay(_ client: AsyncSocket, _ server: AsyncSocket) async throws -> RelayTotals {
        var failed: AsyncSocket?
        do {
            return try await client.relay(with: server, idleTimeout: limits.idleTimeout.duration) { failed = $1 }
        } catch let error as AsyncSocketError where error.code == .idleTimeout {
            throw RelayStepFailure(side: .both, cause: error)
        } catch let error as CancellationError {
            throw error
        } catch {
            // If one of the connections was already closed, the relay did not start.
            let isClients = failed.map { $0 === client } ?? client.isDisconnected
            throw RelayStepFailure(side: isClients ? .client : .target, cause: error)
        }
    }

    // MARK: - Routing

    private func destination(of client: AsyncSocket) async throws -> (Endpoint, Data)? {
        guard routes.isByName else { return routes.target(for: nil).map { ($0, Data()) } }
        guard let start = try await client.readFrame(TLSClientHelloFraming(), timeout: limits.timeout.duration) else {
            return nil
        }
        let name = start.hello.serverName
        if let endpoint = routes.target(for: name) { return (endpoint, start.bytes) }
        reporter.note(
            "client \(client.originalAddress.text): \(name.map { "no route for the name \"\($0)\"" } ?? "no server name was requested, and no target is set with --to")"
        )
        try await client.write(Self.unrecognizedName)
        return nil
    }

    /// A TLS record with the fatal alert unrecognized_name (RFC 6066, section 3).
    private static let unrecognizedName: [UInt8] = [21, 3, 3, 0, 2, 2, 112]

    // MARK: - Connecting

    private func proxy(for endpoint: Endpoint) -> SocketProxy? { endpoint.hostName == nil ? nil : target.toProxy?.proxy }

    private func connect(_ server: AsyncSocket, to endpoint: Endpoint, for client: AsyncSocket) async throws {
        let proxy = proxy(for: endpoint)
        let plan = try await RelayStepFailure.of(.target) { try await prepared(for: endpoint) }
        try await RelayStepFailure.of(proxy == nil ? .target : .proxy) { try await connect(server, to: endpoint, proxy) }
        try await RelayStepFailure.of(.target) {
            if let version = target.proxyOut?.version { try await server.write(header(of: client, version), as: version) }
            if let plan { try await secure(server, endpoint, plan) }
        }
        try await alignGreetings(client, server)
    }

    private func connect(_ server: AsyncSocket, to endpoint: Endpoint, _ proxy: SocketProxy?) async throws {
        switch endpoint {
        case .host(let host, let port): try await server.connect(to: host, port: port, proxy: proxy, timeout: nil)
        case .unix:
            guard let address = endpoint.unixAddress else { throw Failure.usage("\(endpoint) is not an address") }
            try await server.connect(to: address, timeout: nil)
        }
    }

    private func secure(_ server: AsyncSocket, _ endpoint: Endpoint, _ plan: TLSClientPlan) async throws {
        let host = target.toSni ?? endpoint.hostName ?? "localhost"
        let session =
            if let name = target.toStarttls {
                try await name.startTLS(on: server, host: host, plan)
            } else {
                try await server.startTLS(settings: plan.settings, trust: plan.trust)
            }
        reporter.describe(session.dane)
    }

    /// Looks up the target's TLSA records, if the target must match them, before it is contacted.
    private func prepared(for endpoint: Endpoint) async throws -> TLSClientPlan? {
        do {
            return try await plan?.prepared(for: endpoint, within: limits.timeout.duration)
        } catch {
            throw Failure(error).ofTargetOptions
        }
    }

    /// Returns the addresses of the client, as the first proxy saw them.
    private func header(of client: AsyncSocket, _ version: ProxyHeader.Version) -> ProxyHeader {
        let header = client.proxyHeader ?? Self.header(of: client)
        let reduced = header.reduced(to: version)
        if reduced != header {
            reporter.detail("parts of \(header) were omitted, because PROXY protocol version 1 cannot describe them")
        }
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
        case (let accepted?, nil):
            try await RelayStepFailure.of(.target) { try await StartTLSGreeting(accepted)?.discard(from: server) }
        case (nil, let requested?):
            guard let greeting = StartTLSGreeting(requested) else { return }
            try await RelayStepFailure.of(.client) { try await client.write(greeting.text) }
        }
    }
}

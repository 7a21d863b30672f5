internal import ArgumentParser
internal import AsyncSockets

/// Forwards connections.
struct Relay: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "relay",
        abstract: "Forward connections, and add or remove TLS on the way.",
        discussion: """
            With --route, the relay reads the server name that a TLS client requests and forwards the connection \
            without decrypting it. Clients that request another name, or none, are forwarded to --to if it is given, \
            and rejected otherwise.

            A configuration file has one option per line, without the dashes: "listen = 8443" or "listen-tls". Lines \
            that begin with # are comments. An option on the command line replaces all options of the same name in the \
            file.

            Certificates are read again when their files change. On SIGTERM or Ctrl-C, the relay stops accepting \
            connections. Existing connections may continue until --grace expires.

            With --hot-restart, a relay that is started with the same path takes over the sockets of the running \
            relay, which then stops accepting connections as after a signal.

            EXAMPLES:
              sockcat relay --listen 8443 --listen-tls --cert a.pem --to localhost:8080
              sockcat relay --listen 5433 --to db.example.org:5432 --to-starttls postgres
              sockcat relay --listen 443 --route a.example=h1:443 --route '*.b=h2:443'
              sockcat relay --listen 80 --to h1:80 --proxy-in 10.0.0.0/8 --proxy-out 2
              sockcat relay --config /etc/sockcat/relay.conf
              sockcat relay --listen 80 --to h1:80 --hot-restart /run/relay.restart --status unix:/run/relay.status
            """)

    @OptionGroup(title: "Addresses") var addresses: RelayAddresses
    @OptionGroup(title: "Accepted connections") var accepting: RelayAcceptOptions
    @OptionGroup(title: "TLS of accepted connections") var tls: TLSServerOptions
    @OptionGroup(title: "Forwarded connections") var target: RelayTargetOptions
    @OptionGroup(title: "Limits") var limits: RelayLimits
    @OptionGroup(title: "Operation") var operation: RelayOperation
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if !addresses.route.isEmpty, accepting.isSecure || target.isSecure {
            throw ValidationError("--route forwards TLS without terminating it: omit the TLS options, or use --to")
        }
        if tls.isUsed, !accepting.isSecure { throw ValidationError("the TLS options require --listen-tls or --listen-starttls") }
        if tls.earlyData, operation.hotRestart != nil {
            throw ValidationError(
                "--early-data and --hot-restart cannot be combined: the next relay could accept the same data again")
        }
        try target.checkTLS()
        try checkStartTLS(accepting.listenStarttls, target.toStarttls)
    }

    private func checkStartTLS(_ accepted: StartTLSName?, _ requested: StartTLSName?) throws {
        if [accepted, requested].contains(.mysql) {
            throw ValidationError("a relay cannot upgrade MySQL connections, because the server's greeting is part of the login")
        }
        if let accepted, let requested, accepted != requested {
            throw ValidationError("--listen-starttls and --to-starttls must name the same protocol")
        }
    }

    func perform(_ reporter: Reporter) async throws {
        let generation = try await RelayGeneration(operation)
        var choices = tls.choices
        choices.ticketKeys = generation.ticketKeys
        let settings = accepting.isSecure ? try ReloadingSettings(choices, fresh: nil, reporter) : nil
        if target.toInsecure { reporter.warn("--to-insecure accepts any certificate of the target") }
        let link = RelayLink(
            routes: try RouteTable(addresses.route, fallback: addresses.to), acceptedStartTLS: accepting.listenStarttls,
            settings: settings,
            target: target, plan: try target.plan(for: addresses.to, timeout: limits.timeout.duration), limits: limits,
            reporter: reporter)
        let server = RelayServer(
            address: addresses.listen, proxyProtocol: try accepting.proxyProtocol, choices: choices,
            settings: accepting.listenTls ? settings : nil, generation: generation, link: link)
        try await server.run()
    }
}

/// Where a relay listens, and where it forwards connections.
struct RelayAddresses: ParsableArguments {
    @Option(
        help: ArgumentHelp("Read options from this file.", valueName: "file"), completion: .file())
    var config: String?

    @Option(
        help: ArgumentHelp(
            "Where to accept connections: PORT, ADDRESS:PORT, INTERFACE:PORT, unix:PATH, unix:@NAME, or systemd[:NAME] for "
                + "sockets of a socket unit.",
            valueName: "address"),
        transform: ListenAddress.init)
    var listen: ListenAddress

    @Option(
        help: ArgumentHelp("Where to forward connections: HOST:PORT, unix:PATH or unix:@NAME.", valueName: "address"),
        transform: Endpoint.init)
    var to: Endpoint?

    @Option(
        help: ArgumentHelp(
            "Forward TLS clients that request this server name, without decrypting them. NAME may begin with \"*.\". "
                + "Repeatable.", valueName: "name=address"),
        transform: RouteArgument.init)
    var route: [RouteArgument] = []

    func validate() throws {
        if to == nil, route.isEmpty { throw ValidationError("the relay has no target: pass --to or --route") }
    }
}

/// How to treat accepted connections.
struct RelayAcceptOptions: ParsableArguments {
    @Flag(help: "Expect TLS from the first byte.")
    var listenTls = false

    @Option(
        help: ArgumentHelp("Upgrade clients to TLS in this protocol.", valueName: "protocol"))
    var listenStarttls: StartTLSName?

    @Option(
        help: ArgumentHelp(
            "Require a PROXY protocol header from these addresses, and reject all others: an address, a prefix such as "
                + "10.0.0.0/8, \"unix:\", or \"any\". Repeatable.", valueName: "source"))
    var proxyIn: [String] = []

    func validate() throws {
        if listenTls, listenStarttls != nil { throw ValidationError("--listen-tls and --listen-starttls cannot be combined") }
    }

    var isSecure: Bool { listenTls || listenStarttls != nil }

    var proxyProtocol: SocketListener.ProxyProtocol? {
        get throws {
            if proxyIn.isEmpty { return nil }
            return .required(from: proxyIn.contains("any") ? .anyone : try .addresses(proxyIn))
        }
    }
}

/// The limits of a relay.
struct RelayLimits: ParsableArguments {
    @Option(help: ArgumentHelp("The time limit for connecting to a target, including TLS.", valueName: "duration"))
    var timeout = DurationArgument(seconds: 10)

    @Option(help: ArgumentHelp("Close connections that are idle for this long.", valueName: "duration"))
    var idleTimeout = DurationArgument(seconds: 300)

    @Option(help: ArgumentHelp("How long existing connections may continue after the first signal.", valueName: "duration"))
    var grace = DurationArgument(seconds: 30)

    @Option(help: ArgumentHelp("The maximum number of simultaneous connections.", valueName: "count"))
    var maxConnections = 10_000

    @Option(
        help: ArgumentHelp(
            "The maximum number of simultaneous connections from one source: an IPv4 address or an IPv6 /64. "
                + "By default, four fifths of --max-connections.", valueName: "count"))
    var maxConnectionsPerSource: Int?

    @Option(
        help: ArgumentHelp(
            "The maximum number of new connections per second from one source, after a burst of ten times as many.",
            valueName: "count"))
    var maxRatePerSource: Double?

    @Option(
        help: ArgumentHelp(
            "The maximum number of bytes per second in each direction of each client's connection.", valueName: "count"))
    var maxBytesPerSecond: Int?

    func validate() throws {
        if let count = maxBytesPerSecond, count < 1 { throw ValidationError("--max-bytes-per-second must be at least 1") }
        if maxConnections < 1 { throw ValidationError("--max-connections must be at least 1") }
        if let count = maxConnectionsPerSource, count < 1 {
            throw ValidationError("--max-connections-per-source must be at least 1")
        }
        if let rate = maxRatePerSource, !(rate > 0) { throw ValidationError("--max-rate-per-source must be greater than 0") }
    }

    func apply(to model: AsyncSocket) {
        let rate = maxBytesPerSecond.map { ByteRate(bytesPerSecond: $0) }
        (model.readRateLimit, model.writeRateLimit) = (rate, rate)
    }

    func apply(to listener: SocketListener) {
        if let maxConnectionsPerSource { listener.maximumConnectionsPerSource = maxConnectionsPerSource }
        if let maxRatePerSource {
            let burst = Int(min(maxRatePerSource * 10, 1e9).rounded(.up))
            listener.rateLimit = SourceRateLimit(perSource: .init(perSecond: maxRatePerSource, burst: burst))
        }
    }
}

/// How to operate a relay.
struct RelayOperation: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Take over the sockets of the relay that runs with the same path, and offer them to the next one.",
            valueName: "path"), completion: .file())
    var hotRestart: String?

    @Option(
        help: ArgumentHelp(
            "Write the relay's state as JSON to each client of this socket: unix:PATH or unix:@NAME.", valueName: "address"),
        transform: ListenAddress.init)
    var status: ListenAddress?

    func validate() throws {
        if let status, !status.isUnix { throw ValidationError("--status must be unix:PATH or unix:@NAME") }
    }
}

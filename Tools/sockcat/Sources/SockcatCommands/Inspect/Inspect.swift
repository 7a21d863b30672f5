internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// `sockcat inspect`: reports the certificates and capabilities of servers, and the certificates in files.
struct Inspect: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "Report the certificates of servers or files, what a server negotiates, and its problems, one per line.",
        discussion: """
            Certificates that fail verification are reported, and the inspection continues. This is safe because no data is \
            sent. The client certificate (--cert) is sent only to a server that is trusted through its TLSA records, --ca, \
            the system's authorities, or --pin with the server's own key. The report includes the server's decision about it.

            The oldest version and the weakest cipher suite are found with separate connections, each of which sends only \
            a ClientHello. This also works for versions and suites that the system's OpenSSL cannot negotiate. A test \
            that fails for a reason other than a rejection is "not testable", and no more connections are made.

            The exit code is that of the most serious problem in any target: 0 if there are no problems, 8 if a certificate \
            expires within --days, 4 if a server is not trusted or a certificate is not valid, 3 if TLS failed or the server refused the client, 5 if a time limit expired, 2 if \
            no connection was established, 7 if a file cannot be read, and 1 for any other failure. Warnings do not \
            change the exit code, and --quiet omits them.

            With --json, each target is one JSON object on one line. Documentation/sockcat-JSON.md describes its members.

            EXAMPLES:
              sockcat inspect www.example.org 443
              sockcat inspect mail.example.org 587 --starttls smtp
              sockcat inspect hub.example.org 5684 --dtls
              sockcat inspect localhost:8443 --ca ca.pem --days 30
              sockcat inspect --hosts servers.txt --quiet       # prints errors only
              sockcat inspect --hosts servers.txt --watch 1h    # prints changes only
              sockcat inspect --mx example.org                  # all mail servers of a domain
              sockcat inspect --srv xmpp-server example.org
              sockcat inspect server.pem client.p12
              sockcat inspect server.pem --ca ca.pem --sni www.example.org
              sockcat inspect www.example.org 443 --json | jq .daysLeft
            """)

    @Argument(
        help:
            "HOST PORT, HOST:PORT or unix:PATH of a server, or files with certificates in PEM, DER or PKCS #12 form, \"-\" for standard input."
    )
    var targets: [String] = []

    @Option(
        help: ArgumentHelp(
            "Also inspect the servers in this file: on each line HOST:PORT, optionally followed by the STARTTLS protocol or by dtls.",
            valueName: "file"),
        completion: .file())
    var hosts: String?

    @Option(
        help: ArgumentHelp(
            "Inspect all mail servers of this domain: STARTTLS, TLSA records (DANE) and certificates. Requires a validating "
                + "resolver, as --dane does. Repeatable.", valueName: "domain"))
    var mx: [String] = []

    @Option(
        parsing: .upToNextOption,
        help: ArgumentHelp(
            "Inspect all servers of a service, such as \"xmpp-server example.org\", in the same way as --mx. Repeatable.",
            valueName: "service domain"))
    var srv: [String] = []

    @Option(help: ArgumentHelp("Upgrade the connections to TLS in this protocol.", valueName: "protocol"))
    var starttls: StartTLSName?

    @Flag(help: "Use DTLS. Versions and cipher suites are then not tested.")
    var dtls = false

    @Option(help: "Report certificates that expire within this number of days.")
    var days = 14

    @Flag(help: "Print one JSON object for each target.")
    var json = false

    @Option(help: ArgumentHelp("Inspect again after each interval, such as 10m, and print only changes.", valueName: "interval"))
    var watch: DurationArgument?

    @Option(help: ArgumentHelp("The time limit for each connection.", valueName: "time"))
    var timeout = DurationArgument(seconds: 10)

    @Option(help: "The number of targets that are inspected at the same time.")
    var parallel = 16

    @Flag(
        name: .customLong("no-probes"),
        help: "Do not test resumption, versions and cipher suites, which takes most of the connections.")
    var skipsProbes = false

    @OptionGroup(title: "Trust") var trust: InspectTrustOptions
    @OptionGroup(title: "Client certificate and PKCS #12 files") var identity: IdentityOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if targets.isEmpty, hosts == nil, mx.isEmpty, srv.isEmpty {
            throw ValidationError("pass HOST PORT, a file with certificates, --hosts FILE, --mx DOMAIN or --srv SERVICE DOMAIN")
        }
        if !srv.count.isMultiple(of: 2) {
            throw ValidationError("--srv takes a service and a domain: --srv xmpp-server example.org")
        }
        if !mx.isEmpty || !srv.isEmpty, !trust.dane.tlsa.isEmpty || trust.sni != nil {
            throw ValidationError("--tlsa and --sni cannot be combined with --mx and --srv: they apply to a single server")
        }
        if dtls, starttls != nil { throw ValidationError("--starttls upgrades TCP connections: omit --dtls") }
        if dtls, targets.isEmpty {
            throw ValidationError("--dtls applies to servers on the command line: in the file of --hosts, write HOST:PORT dtls")
        }
        guard (1...1024).contains(parallel) else {
            throw ValidationError("--parallel must be from 1 to 1024, but is \(parallel)")
        }
        let inputs = targets.count { $0 == "-" }
        if inputs > 1 || inputs > 0 && watch != nil {
            throw ValidationError("standard input can be read only once: pass \"-\" once, and without --watch")
        }
        guard days >= 0 else { throw ValidationError("--days must be at least 0, but is \(days)") }
    }

    func perform(_ reporter: Reporter) async throws {
        Interruption.exitsImmediately()
        let fleet = Fleet(
            targets: try allTargets(), domains: try domains(), choices: try choices(), parallel: parallel,
            passphraseFile: identity.passphraseFile)
        let printer = try ReportPrinter(output, json: json)
        if let watch {
            try await Watch(fleet: fleet, interval: watch.duration, printer: printer).run()
        } else {
            let worst = try await fleet.inspect { try await printer.print($0) }
            if worst != .ok { throw ExitCode(worst.exitStatus.rawValue) }
        }
    }

    private func allTargets() throws -> [InspectionTarget] {
        var all = try InspectionTarget.targets(targets, starttls, isDatagram: dtls, serverName: trust.sni)
        if let hosts { all += try InspectionTarget.targets(inList: InputFile.text(hosts), named: hosts) }
        try requireServers(all)
        return all
    }

    /// Records belong to servers, and those on the command line to a single server. Without a server, the
    /// options for connections have no effect.
    private func requireServers(_ all: [InspectionTarget]) throws {
        let files = all.compactMap { if case .file(let path) = $0 { path } else { nil } }
        if let path = files.first, files.count == all.count, mx.isEmpty, srv.isEmpty, let option = optionOfConnections {
            throw Failure.usage("\(option) applies to servers, but \"\(path)\" is a file")
        }
        for case .server(let server) in all where server.isDatagram && server.endpoint.unixAddress != nil {
            throw Failure.usage("\(server.endpoint) is not a UDP address", advice: "pass a host and a port")
        }
        if trust.dane.choice == .none { return }
        for case .file(let path) in all {
            throw Failure.usage("--dane and --tlsa apply to servers, but \"\(path)\" is a file")
        }
        if !trust.dane.tlsa.isEmpty, all.count != 1 || hosts != nil {
            throw Failure.usage("--tlsa applies to a single server", advice: "look up the records with --dane instead")
        }
    }

    /// An option that was given and has an effect only on connections.
    private var optionOfConnections: String? {
        let options = [
            ("--starttls", starttls != nil), ("--dtls", dtls), ("--no-probes", skipsProbes), ("--alpn", !trust.alpn.isEmpty),
            ("--cert", identity.cert != nil), ("--p12", identity.pkcs12 != nil),
            ("--tls-version", trust.limits.tlsVersion != nil),
            ("--cipher-suite", !trust.limits.cipherSuite.isEmpty),
        ]
        return options.first(where: \.1)?.0
    }

    private func domains() throws -> [ServiceDomain] {
        let pairs = stride(from: 0, to: srv.count, by: 2).map { (srv[$0], srv[$0 + 1]) }
        return try mx.map { try ServiceDomain(mail: $0, startTLS: starttls) }
            + pairs.map { try ServiceDomain(service: $0, domain: $1, startTLS: starttls) }
    }

    private func choices() throws -> InspectionChoices {
        if let name = trust.sni {
            do {
                try TLSSettings.client(serverName: name).validate()
            } catch {
                throw Failure.usage("--sni: \(error.message)")
            }
        }
        return InspectionChoices(
            trustRoots: trust.ca.map { TLSClientChoices.roots($0) } ?? .system, identity: try identity.files?.load(),
            applicationProtocols: trust.alpn, pins: Set(trust.pin.map(\.digest)), dane: trust.dane.choice,
            timeout: timeout.duration, days: days, probes: !skipsProbes, verifiesFiles: trust.ca != nil || trust.sni != nil,
            fileServerName: trust.sni, limits: trust.limits.limits)
    }
}

/// How to verify the servers.
struct InspectTrustOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Trust the authorities in this PEM file, or in the files of this folder, instead of the system's. If a target is "
                + "a file, verify the chain of its first certificate.",
            valueName: "path"),
        completion: .file())
    var ca: String?

    @Option(
        help: ArgumentHelp(
            "The host name to request with SNI and to expect in the certificate. If a target is a file, also verify its chain.",
            valueName: "name"))
    var sni: String?

    @Option(help: ArgumentHelp("The digest of a public key that the chain must contain. Repeatable.", valueName: "digest"))
    var pin: [PinArgument] = []

    @OptionGroup var dane: DANEOptions

    @Option(help: ArgumentHelp("An application protocol to offer (ALPN), such as h2. Repeatable.", valueName: "protocol"))
    var alpn: [String] = []

    @OptionGroup var limits: TLSLimitOptions
}

/// Prints reports on standard output in the chosen form.
struct ReportPrinter: Sendable {
    private let output: DescriptorWriter
    private let isQuiet: Bool
    private let isVerbose: Bool
    private let isJSON: Bool
    let style: TerminalStyle

    init(_ options: OutputOptions, json: Bool) throws {
        output = try .standardOutput()
        (isQuiet, isVerbose, isJSON) = (options.quiet, options.verbose, json)
        style = TerminalStyle(options.color, descriptor: STDOUT_FILENO)
    }

    func print(_ report: InspectionReport) async throws {
        if isJSON { return try await print("\(PrintableText(json: report))\n") }
        let text = ReportText(report: report, style: style, isVerbose: isVerbose)
        try await print(isQuiet ? text.brief : text.full)
    }

    func print(_ text: PrintableText) async throws {
        if text != "" { try await output.write(text) }
    }

    var printsJSON: Bool { isJSON }
}

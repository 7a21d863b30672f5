internal import ArgumentParser
internal import AsyncSockets
internal import Glibc

/// Accepts connections and echoes, prints or hands them to a command.
struct Listen: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "listen",
        abstract: "Accept connections, and echo their data, print it or pass it to a command.",
        discussion: """
            Without --echo, --exec, --keep-open and --mail, the command connects standard input and output to one client and \
            then exits. If no certificate is given, --tls, --dtls and --starttls generate one and print its fingerprint.

            On SIGTERM or Ctrl-C, a server stops accepting connections. Existing connections may continue until \
            --grace expires. A second signal closes them immediately.

            EXAMPLES:
              sockcat listen 7000
              sockcat listen --echo --tls localhost:7000
              sockcat listen --keep-open 7000 >> received
              sockcat listen --exec 'tr a-z A-Z' 7000
              sockcat listen --echo --tls --cert server.pem --client-ca ca.pem 7000
              sockcat listen --mail --starttls smtp --cert server.pem 2525
            """)

    @Argument(
        help: ArgumentHelp(
            "PORT, ADDRESS:PORT, INTERFACE:PORT, unix:PATH, unix:@NAME, or systemd[:NAME] for sockets of a socket unit. "
                + "With port 0, the kernel chooses a port.",
            valueName: "port"),
        transform: ListenAddress.init)
    var address: ListenAddress

    @OptionGroup(title: "Service") var service: ListenService
    @OptionGroup(title: "Transport") var transport: TransportOptions
    @OptionGroup(title: "Data") var data: ExchangeOptions
    @OptionGroup(title: "TLS") var tls: ListenTLSOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if tls.isUsed, !transport.isSecure { throw ValidationError("the TLS options require --tls, --dtls or --starttls") }
        if transport.isDatagram, tls.server.earlyData {
            throw ValidationError("--early-data requires TLS: omit --udp and --dtls")
        }
        if service.mail, transport.starttls.map(StartTLSName.mailProtocols.contains) != true {
            throw ValidationError("--mail requires --starttls smtp, lmtp, imap or pop3")
        }
        if transport.isDatagram, service.exec != nil { throw ValidationError("--exec requires TCP: omit --udp and --dtls") }
    }

    func perform(_ reporter: Reporter) async throws {
        let fresh = try freshCertificate()
        if transport.isDatagram {
            try await DatagramServer(address: address, isEcho: service.echo, choices: self, fresh: fresh, reporter: reporter)
                .run()
        } else {
            try await StreamServer(address: address, mode: service.mode, choices: self, fresh: fresh, reporter: reporter).run()
        }
    }

    private func freshCertificate() throws -> FreshCertificate? {
        guard transport.isSecure, tls.server.choices.needsFreshCertificate else { return nil }
        return try FreshCertificate(names: tls.name.isEmpty ? ["localhost", "127.0.0.1", "::1"] : tls.name)
    }
}

/// What a server does with its clients.
struct ListenService: ParsableArguments {
    @Flag(help: "Send all received data back to the client.")
    var echo = false

    @Option(
        help: ArgumentHelp(
            "Run this shell command for each client. Its standard input and output are the client's data. The variable "
                + "SOCKCAT_PEER contains the client's address.", valueName: "command"))
    var exec: String?

    @Flag(name: .shortAndLong, help: "Serve any number of clients, and print what they send.")
    var keepOpen = false

    @Flag(
        help: ArgumentHelp(
            "After the upgrade with --starttls smtp, lmtp, imap or pop3, reply to the commands of any number of clients and "
                + "print what they send. Messages are accepted and discarded. Passwords are not printed, and every login fails. "
                + "Clients that send no line for five minutes, or for --idle-timeout, are disconnected."))
    var mail = false

    @Option(help: ArgumentHelp("The maximum number of simultaneous connections.", valueName: "count"))
    var maxConnections: Int?

    @Option(
        help: ArgumentHelp("How long existing connections may continue after the first signal.", valueName: "duration"))
    var grace = DurationArgument(seconds: 10)

    func validate() throws {
        if echo, exec != nil { throw ValidationError("--echo and --exec cannot be combined") }
        if keepOpen, echo || exec != nil || mail {
            throw ValidationError("--echo, --exec and --mail already serve any number of clients")
        }
        if mail, echo || exec != nil { throw ValidationError("--mail cannot be combined with --echo and --exec") }
        if let maxConnections, maxConnections < 1 { throw ValidationError("--max-connections must be at least 1") }
    }

    var mode: StreamServer.Mode {
        if let exec { return .exec(exec) }
        if mail { return .mail }
        return echo ? .echo : keepOpen ? .print : .exchange
    }
}

/// The options for TLS, including those for a new certificate.
struct ListenTLSOptions: ParsableArguments {
    @OptionGroup var server: TLSServerOptions

    @Option(
        help: ArgumentHelp(
            "A name for the generated certificate. The first name is also the server's name in greetings. Repeatable.",
            valueName: "name"))
    var name: [String] = []

    var isUsed: Bool { server.isUsed || !name.isEmpty }
}

extension Reporter {
    /// Prints where a server listens and, for a new certificate, how clients can verify it.
    func noteListening(on addresses: [SocketEndpoint], _ address: ListenAddress, _ fresh: FreshCertificate?) {
        if address.isOpen {
            let port = addresses.first?.port.map { "\($0)" } ?? "PORT"
            note("other hosts can connect: to accept only connections from this host, listen on localhost:\(port)")
        }
        note("listening on \(addresses.text)")
        guard let fresh else { return }
        note("new certificate for \((fresh.certificate.dnsNames + fresh.certificate.ipAddresses).joined(separator: ", "))")
        note("fingerprint (SHA-256): \(style.bold("\(fresh.fingerprint)"))")
        note("to verify it, connect with: --pin-only --pin \(fresh.pin)")
    }
}

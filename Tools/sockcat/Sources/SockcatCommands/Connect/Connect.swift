internal import ArgumentParser
internal import AsyncSockets
internal import Glibc

/// Connects standard input and output to a peer.
struct Connect: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Connect standard input and output to a server.",
        discussion: """
            At the end of the input, the sending side of the connection is closed. The command exits when both sides \
            are closed or, if the input is a terminal, as soon as the server closes its side. With UDP, each line of \
            the input is sent as one datagram.

            EXAMPLES:
              sockcat connect localhost 7000
              sockcat connect --tls example.org:443 --alpn http/1.1 --crlf
              sockcat connect --starttls imap mail.example.org 143
              sockcat connect unix:/run/example.sock < request > reply
              sockcat connect --dtls --psk @sensor.key hub.example.org 5684
              sockcat connect --proxy socks5://localhost:1080 --tls example.org 443
            """)

    @Argument(
        help: ArgumentHelp(
            "A host name or address, HOST:PORT, unix:PATH or, for an abstract name, unix:@NAME.", valueName: "host"))
    var host: String

    @Argument(help: ArgumentHelp("The port.", valueName: "port"))
    var port: String?

    @OptionGroup(title: "Transport") var transport: TransportOptions
    @OptionGroup(title: "Connection") var options: ConnectOptions
    @OptionGroup(title: "Data") var data: ExchangeOptions
    @OptionGroup(title: "TLS") var tls: TLSClientOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if tls.isUsed, !transport.isSecure {
            throw ValidationError("the TLS options require --tls, --dtls or --starttls")
        }
        if transport.isDatagram, options.proxy != nil {
            throw ValidationError("--proxy forwards TCP connections only: omit --udp and --dtls")
        }
        if !transport.isDatagram, options.datagramSize != nil {
            throw ValidationError("--datagram-size requires --udp or --dtls")
        }
    }

    func perform(_ reporter: Reporter) async throws {
        Interruption.exitsImmediately()
        let endpoint = try port.map { try Endpoint.host(host, port: $0) } ?? Endpoint(host)
        if tls.insecure { reporter.warn(TLSClientChoices.insecureWarning) }
        let plan =
            transport.isSecure
            ? try tls.choices.plan(timeout: options.timeout.duration, isForDatagrams: transport.isDatagram) : nil
        if transport.isDatagram {
            try await DatagramSession(endpoint: endpoint, plan: plan, options: options, data: data, reporter: reporter).run()
        } else {
            try await StreamSession(
                endpoint: endpoint, plan: plan, startTLS: transport.starttls, options: options, data: data, reporter: reporter
            ).run()
        }
    }
}

/// The options of `connect` that do not concern TLS.
struct ConnectOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Connect through this proxy: socks5://[USER:PASSWORD@]HOST:PORT or http://….", valueName: "url"))
    var proxy: ProxyArgument?

    @Option(
        help: ArgumentHelp(
            "The time limit for connecting and for the TLS handshake, such as 5, 500ms or 2m.", valueName: "duration"))
    var timeout = DurationArgument(seconds: 30)

    @Option(
        help: ArgumentHelp(
            "With UDP, send the input in datagrams of this many bytes, instead of one per line.", valueName: "bytes"))
    var datagramSize: Int?

    @Option(
        help: ArgumentHelp(
            "With UDP, how long to wait for further datagrams after the end of the input.", valueName: "duration"))
    var linger = DurationArgument(seconds: 1)

    func validate() throws {
        if let datagramSize, !(1...65507).contains(datagramSize) {
            throw ValidationError("--datagram-size must be from 1 to 65507")
        }
    }
}

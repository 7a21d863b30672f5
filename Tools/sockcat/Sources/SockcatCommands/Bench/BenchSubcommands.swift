internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// `sockcat bench handshakes`: measures full or resumed TLS handshakes.
struct BenchHandshakes: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "handshakes",
        abstract: "Measure TLS handshakes per second, full or resumed.",
        discussion: """
            Each handshake uses a new connection. The percentiles include the handshake and the --starttls \
            dialogue, but not the time to connect. With --resumed, the session of one full handshake \
            is resumed in all others.
            """)

    @Flag(help: "Resume a session in each handshake.")
    var resumed = false

    @Flag(help: "Measure DTLS handshakes.")
    var dtls = false

    @Option(help: ArgumentHelp("Upgrade the connections in this protocol.", valueName: "protocol"))
    var starttls: StartTLSName?

    @OptionGroup var options: BenchOptions
    @OptionGroup(title: "TLS") var tls: TLSClientOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if dtls, starttls != nil { throw ValidationError("--starttls upgrades TCP connections: omit --dtls") }
        if dtls { try options.checkDatagrams(tls) }
    }

    func perform(_ reporter: Reporter) async throws {
        var target = try await options.target(tls, isSecure: true, startTLS: starttls, isDatagram: dtls, reporter)
        if resumed {
            guard let session = try await target.session() else {
                throw Failure(
                    "\(target.endpoint) offered no session to resume",
                    advice: "enable session tickets on the server, and renew its certificate if it has expired",
                    status: .handshakeFailed)
            }
            target = target.resuming(session)
        }
        let (workload, measurement) = (HandshakeWorkload(target: target), resumed ? BenchMeasurement.resumptions : .handshakes)
        try await options.measure(measurement, output, reporter) { try await workload.perform($0) }
    }
}

/// Whether and how to use TLS, for measurements that also work without it.
struct BenchTransportOptions: ParsableArguments {
    @Flag(help: "Use TLS from the first byte.")
    var tls = false

    @Option(help: ArgumentHelp("Upgrade the connections in this protocol.", valueName: "protocol"))
    var starttls: StartTLSName?

    func validate() throws {
        if tls, starttls != nil { throw ValidationError("--starttls upgrades a plaintext connection: omit --tls") }
    }

    var isSecure: Bool { tls || starttls != nil }
}

/// `sockcat bench requests`: measures requests and their responses.
struct BenchRequests: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "requests",
        abstract: "Measure requests per second.",
        discussion: """
            Each connection sends the request, waits for the response, and repeats. In --send and --until, \\r, \
            \\n, \\t, \\0, \\\\ and \\xHH stand for special characters.

            EXAMPLES:
              sockcat bench requests localhost 8080 --http /
              sockcat bench requests localhost 6379 --send 'PING\\r\\n' --until '\\r\\n'
              sockcat bench requests localhost 7000 --send ping --response-bytes 4
              sockcat bench requests localhost 5684 --dtls --ca ca.pem --send ping
            """)

    @Option(help: ArgumentHelp("Send GET requests for this path, and read HTTP/1.1 responses.", valueName: "path"))
    var http: String?

    @Option(help: ArgumentHelp("The request.", valueName: "text"))
    var send: EscapedText?

    @Option(help: ArgumentHelp("The text at the end of each response. The default is \\n.", valueName: "text"))
    var until: EscapedText?

    @Option(help: ArgumentHelp("The number of bytes of each response.", valueName: "count"))
    var responseBytes: Int?

    @Flag(help: "Use DTLS. Each request and each response is one datagram.")
    var dtls = false

    @OptionGroup(title: "Transport") var transport: BenchTransportOptions
    @OptionGroup var options: BenchOptions
    @OptionGroup(title: "TLS") var tls: TLSClientOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        guard (http == nil) != (send == nil) else { throw ValidationError("pass either --http PATH or --send TEXT") }
        if http != nil, until != nil || responseBytes != nil {
            throw ValidationError("--http finds the end of each response: omit --until and --response-bytes")
        }
        if until != nil, responseBytes != nil { throw ValidationError("--until and --response-bytes cannot be combined") }
        if let responseBytes, responseBytes < 1 { throw ValidationError("--response-bytes must be at least 1") }
        if dtls {
            if http != nil || until != nil || responseBytes != nil {
                throw ValidationError("with --dtls, each response is one datagram: omit --http, --until and --response-bytes")
            }
            if transport.isSecure { throw ValidationError("--dtls cannot be combined with --tls and --starttls") }
            try options.checkDatagrams(tls)
        }
        if until?.bytes.isEmpty == true { throw ValidationError("--until must not be empty") }
    }

    func perform(_ reporter: Reporter) async throws {
        let target = try await options.target(
            tls, isSecure: dtls || transport.isSecure, startTLS: transport.starttls, isDatagram: dtls, reporter)
        if dtls {
            let workload = DatagramWorkload(target: target, request: send?.bytes ?? Data())
            return try await options.measure(.requests, output, reporter) { try await workload.perform($0) }
        }
        let workload = RequestWorkload(target: target, request: request(target.endpoint), response: response)
        try await options.measure(.requests, output, reporter) { try await workload.perform($0) }
    }

    private func request(_ endpoint: Endpoint) -> Data {
        guard let http else { return send?.bytes ?? Data() }
        let host = endpoint.hostName == nil ? "localhost" : "\(endpoint)"
        return Data("GET \(http) HTTP/1.1\r\nHost: \(host)\r\nUser-Agent: sockcat\r\n\r\n".utf8)
    }

    private var response: RequestWorkload.Response {
        if http != nil { return .http }
        if let responseBytes { return .length(responseBytes) }
        return .delimiter(until?.bytes ?? Data("\n".utf8))
    }
}

/// `sockcat bench bytes`: measures the throughput of established connections.
struct BenchBytes: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "bytes",
        abstract: "Measure bytes per second.",
        discussion: """
            The percentiles are the times to write a block (send), to receive data (receive), or to send a \
            block and receive it back (echo).

            EXAMPLES:
              sockcat bench bytes localhost 7000 --direction echo
              sockcat bench bytes localhost 9 --tls --ca ca.pem
              sockcat bench bytes localhost 8080 --direction receive --send 'GET /large HTTP/1.0\\r\\n\\r\\n'
            """)

    @Option(help: "The direction of the data: send, receive or echo.")
    var direction = BlockWorkload.Direction.send

    @Option(help: ArgumentHelp("The size of a block.", valueName: "bytes"))
    var block = 65_536

    @Option(help: ArgumentHelp("Text to send first on each connection.", valueName: "text"))
    var send: EscapedText?

    @OptionGroup(title: "Transport") var transport: BenchTransportOptions
    @OptionGroup var options: BenchOptions
    @OptionGroup(title: "TLS") var tls: TLSClientOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        guard (1...16_777_216).contains(block) else {
            throw ValidationError("--block must be from 1 to 16777216, but is \(block)")
        }
    }

    func perform(_ reporter: Reporter) async throws {
        let target = try await options.target(tls, isSecure: transport.isSecure, startTLS: transport.starttls, reporter)
        let workload = BlockWorkload(
            target: target, direction: direction, request: send?.bytes ?? Data(), blockSize: block)
        try await options.measure(.blocks, output, reporter) { try await workload.perform($0) }
    }
}

extension BlockWorkload.Direction: ExpressibleByArgument {}

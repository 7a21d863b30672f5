internal import ArgumentParser

/// The options that choose the transport: TCP by default, and optionally UDP, TLS and DTLS.
struct TransportOptions: ParsableArguments {
    @Flag(help: "Use TLS from the first byte.")
    var tls = false

    @Flag(name: [.customShort("u"), .long], help: "Use UDP. With --tls, use DTLS.")
    var udp = false

    @Flag(help: "Use DTLS, which is the same as --udp --tls.")
    var dtls = false

    @Option(
        help: ArgumentHelp("Upgrade the connection to TLS in this protocol.", valueName: "protocol"))
    var starttls: StartTLSName?

    func validate() throws {
        if starttls != nil, tls || udp || dtls {
            throw ValidationError("--starttls upgrades a plaintext TCP connection: omit --tls, --udp and --dtls")
        }
    }

    var isDatagram: Bool { udp || dtls }
    var isSecure: Bool { tls || dtls || starttls != nil }
}

internal import ArgumentParser

/// The options for a TLS server: what to present, and which clients to accept.
struct TLSServerOptions: ParsableArguments {
    @OptionGroup var identity: IdentityOptions

    @Option(
        help: ArgumentHelp(
            "Require client certificates from the authorities in this PEM file, or in the files of this folder.",
            valueName: "path"),
        completion: .file())
    var clientCa: String?

    @Option(
        help: ArgumentHelp(
            "Accept only clients with this pre-shared key: IDENTITY:HEX, or @FILE for a file with that text.", valueName: "key"))
    var psk: PreSharedKeyArgument?

    @Option(
        help: ArgumentHelp(
            "An application protocol to accept (ALPN), most preferred first. Repeatable.", valueName: "protocol"))
    var alpn: [String] = []

    @Option(
        help: ArgumentHelp("Append the secrets of all connections to this file, for Wireshark.", valueName: "file"),
        completion: .file())
    var keylog: String?

    @OptionGroup var limits: TLSLimitOptions

    @Flag(
        help: ArgumentHelp(
            "Accept up to 16 KiB that a TLS 1.3 client sends with the first message of a resumed session (0-RTT). They are read "
                + "after the handshake, so replayed data has no effect."))
    var earlyData = false

    func validate() throws {
        if earlyData, psk != nil || clientCa != nil {
            throw ValidationError("--early-data arrives before a client is verified: omit --psk and --client-ca")
        }
        if earlyData, !limits.limits.allowsTLS13 {
            throw ValidationError("--early-data requires TLS 1.3, which --tls-version does not allow")
        }
        if psk != nil, identity.files != nil || clientCa != nil {
            throw ValidationError("--psk replaces certificates: it cannot be combined with --cert, --p12 or --client-ca")
        }
    }

    /// Whether an option was given that has an effect only with TLS.
    var isUsed: Bool {
        identity.files != nil || clientCa != nil || psk != nil || !alpn.isEmpty || keylog != nil || limits.isUsed
            || earlyData
    }

    var choices: TLSServerChoices {
        TLSServerChoices(
            identity: identity.files, clientAuthorities: clientCa, preSharedKey: psk, applicationProtocols: alpn,
            keyLogFile: keylog, limits: limits.limits, acceptsEarlyData: earlyData)
    }
}

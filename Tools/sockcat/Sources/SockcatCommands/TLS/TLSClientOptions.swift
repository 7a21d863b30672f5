internal import ArgumentParser
internal import AsyncSockets

/// The options for a TLS client: how to verify the server, and what to present to it.
struct TLSClientOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Trust the authorities in this PEM file, or in the files of this folder, instead of the system's.",
            valueName: "path"),
        completion: .file())
    var ca: String?

    @Option(
        help: ArgumentHelp(
            "The host name to request with SNI and to expect in the certificate. Defaults to HOST.", valueName: "name"))
    var sni: String?

    @Option(
        help: ArgumentHelp(
            "The SHA-256 digest of a public key that the server's chain must contain, in hexadecimal or as sha256//BASE64. "
                + "Repeat the option for backup keys.", valueName: "digest"))
    var pin: [PinArgument] = []

    @Flag(help: "Accept any certificate with a pinned key, even from an unknown authority or for another name.")
    var pinOnly = false

    @OptionGroup var dane: DANEOptions

    @OptionGroup var identity: IdentityOptions

    @Option(
        help: ArgumentHelp(
            "Use a pre-shared key instead of certificates: IDENTITY:HEX, or @FILE for a file with that text.",
            valueName: "key"))
    var psk: PreSharedKeyArgument?

    @Option(
        help: ArgumentHelp("An application protocol to offer (ALPN), such as h2. Repeatable.", valueName: "protocol"))
    var alpn: [String] = []

    @Option(
        help: ArgumentHelp("Resume the session in this file if possible, and store the new session there.", valueName: "file"),
        completion: .file())
    var resume: String?

    @Option(
        help: ArgumentHelp(
            "Send the contents of this file (1 to 65,536 bytes) with the first message of a resumed session, before the "
                + "handshake is complete. An attacker can replay this data. Requires --resume.", valueName: "file"),
        completion: .file())
    var earlyData: String?

    @Option(
        help: ArgumentHelp("Append the secrets of the connection to this file, for Wireshark.", valueName: "file"),
        completion: .file())
    var keylog: String?

    @OptionGroup var limits: TLSLimitOptions

    @Flag(
        help:
            "Accept any certificate. Anyone on the network can then read and change the data, and receive the certificate of --cert."
    )
    var insecure = false

    func validate() throws {
        if pinOnly, pin.isEmpty { throw ValidationError("--pin-only requires --pin: pass the digest of the server's key") }
        if pinOnly, insecure { throw ValidationError("--pin-only and --insecure cannot be combined") }
        if earlyData != nil, resume == nil { throw ValidationError("--early-data requires --resume") }
        if earlyData != nil, pinOnly || insecure {
            throw ValidationError("--early-data requires a verified server: it cannot be combined with --pin-only or --insecure")
        }
        let other = [("pin-only", pinOnly), ("insecure", insecure), ("psk", psk != nil)]
        if let contradiction = dane.choice.contradiction(hasAuthorities: ca != nil, other: other) {
            throw ValidationError(contradiction)
        }
        if psk != nil, identity.files != nil || !pin.isEmpty || insecure || resume != nil {
            throw ValidationError("--psk replaces certificates: it cannot be combined with their options or with --resume")
        }
    }

    /// Whether an option was given that has an effect only with TLS.
    var isUsed: Bool {
        ca != nil || sni != nil || !pin.isEmpty || dane.choice != .none || identity.files != nil || psk != nil || !alpn.isEmpty
            || resume != nil
            || earlyData != nil || keylog != nil || limits.isUsed || insecure
    }

    var choices: TLSClientChoices {
        TLSClientChoices(
            authorities: ca, serverName: sni, pins: pin, trustsPinsAlone: pinOnly, dane: dane.choice,
            identity: identity.files, preSharedKey: psk, applicationProtocols: alpn, sessionFile: resume,
            earlyDataFile: earlyData, keyLogFile: keylog, limits: limits.limits,
            isInsecure: insecure)
    }
}

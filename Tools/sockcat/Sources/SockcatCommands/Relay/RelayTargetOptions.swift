internal import ArgumentParser
internal import AsyncSockets

/// How to connect to targets. The TLS options are those of `connect`, with the prefix "to-".
struct RelayTargetOptions: ParsableArguments {
    @Flag(help: "Use TLS from the first byte.")
    var toTls = false

    @Option(
        help: ArgumentHelp("Upgrade connections to TLS in this protocol.", valueName: "protocol"))
    var toStarttls: StartTLSName?

    @Option(help: ArgumentHelp("Trust these authorities instead of the system's.", valueName: "path"), completion: .file())
    var toCa: String?

    @Option(help: ArgumentHelp("The host name to request and to expect in the certificate.", valueName: "name"))
    var toSni: String?

    @Option(help: ArgumentHelp("The digest of a key that the target's chain must contain. Repeatable.", valueName: "digest"))
    var toPin: [PinArgument] = []

    @Flag(help: "Accept any certificate with a pinned key.")
    var toPinOnly = false

    @Option(
        help: ArgumentHelp(
            "A TLSA record of the target, such as \"3 1 1 HEX\" (DANE). Repeatable.", valueName: "record"),
        transform: TLSAArgument.record)
    var toTlsa: [TLSARecord] = []

    @Flag(help: "Look up the target's TLSA records for each connection. Requires a validating resolver on this machine.")
    var toDane = false

    @Option(help: ArgumentHelp("The certificate chain to present.", valueName: "file"), completion: .file())
    var toCert: String?

    @Option(
        help: ArgumentHelp(
            "The private key. For --to-cert NAME.pem, defaults to NAME-key.pem if it exists, and otherwise to the file of "
                + "--to-cert.", valueName: "file"),
        completion: .file())
    var toKey: String?

    @Option(
        name: .customLong("to-p12"), help: ArgumentHelp("A PKCS #12 file with the certificate and its key.", valueName: "file"),
        completion: .file())
    var toPKCS12: String?

    @Option(
        help: ArgumentHelp(
            "A file with the passphrase of the target's key on its first line. Defaults to the environment variable "
                + "SOCKCAT_PASSPHRASE or a prompt.", valueName: "file"),
        completion: .file())
    var toPassphraseFile: String?

    @Option(help: ArgumentHelp("Use a pre-shared key instead of certificates: IDENTITY:HEX or @FILE.", valueName: "key"))
    var toPsk: PreSharedKeyArgument?

    @Option(help: ArgumentHelp("An application protocol to offer (ALPN). Repeatable.", valueName: "protocol"))
    var toAlpn: [String] = []

    @Option(help: ArgumentHelp("The TLS versions to allow: 1.2, 1.3 or 1.2..1.3.", valueName: "versions"))
    var toTlsVersion: TLSVersionRange?

    @Option(help: ArgumentHelp("A cipher suite to allow, most preferred first. Repeatable.", valueName: "suite"))
    var toCipherSuite: [String] = []

    @Flag(help: "Accept any certificate of the target.")
    var toInsecure = false

    @Option(
        help: ArgumentHelp(
            "Send a PROXY protocol header of this version. Version 1 supports only TCP over IPv4 and IPv6, and has no "
                + "additional fields. For other clients, the header is PROXY UNKNOWN.", valueName: "version"))
    var proxyOut: ProxyVersion?

    @Option(
        help: ArgumentHelp("Connect through this proxy: socks5://[USER:PASSWORD@]HOST:PORT or http://….", valueName: "url"))
    var toProxy: ProxyArgument?

    func validate() throws {
        if toTls, toStarttls != nil { throw ValidationError("--to-tls and --to-starttls cannot be combined") }
        if toKey != nil, toCert == nil { throw ValidationError("--to-key requires --to-cert") }
        if toCert != nil, toPKCS12 != nil { throw ValidationError("--to-cert and --to-p12 cannot be combined") }
        if let contradiction = limits.contradiction {
            throw ValidationError("--to-tls-version and --to-cipher-suite cannot be combined like this: \(contradiction)")
        }
        if toDane, !toTlsa.isEmpty { throw ValidationError("--to-dane and --to-tlsa cannot be combined") }
        let other = [("pin-only", toPinOnly), ("insecure", toInsecure), ("psk", toPsk != nil)]
        if let contradiction = dane.contradiction(prefix: "to-", hasAuthorities: toCa != nil, other: other) {
            throw ValidationError(contradiction)
        }
        if toPinOnly, toPin.isEmpty { throw ValidationError("--to-pin-only requires --to-pin") }
    }

    var isSecure: Bool { toTls || toStarttls != nil }

    /// Throws if an option was given that has an effect only with TLS.
    func checkTLS() throws {
        let isUsed =
            toCa != nil || toSni != nil || !toPin.isEmpty || identity != nil || toPsk != nil || !toAlpn.isEmpty || toInsecure
            || dane != .none || toTlsVersion != nil || !toCipherSuite.isEmpty
        if isUsed, !isSecure { throw ValidationError("the TLS options of the target require --to-tls or --to-starttls") }
    }

    private var dane: DANEChoice { toDane ? .lookUp : toTlsa.isEmpty ? .none : .records(toTlsa) }

    private var limits: TLSLimits { TLSLimits(versions: toTlsVersion, cipherSuites: toCipherSuite) }

    private var identity: IdentityFiles? {
        IdentityFiles(certificate: toCert, key: toKey, pkcs12: toPKCS12, passphraseFile: toPassphraseFile)
    }

    /// Reads the files and returns the settings, or `nil` for plaintext connections. Throws if no connection
    /// to the target can use the settings, because a relay that cannot connect to its target should not
    /// start.
    func plan(for target: Endpoint?, timeout: Duration) throws -> TLSClientPlan? {
        guard isSecure else { return nil }
        if let target, target.hostName == nil, toSni == nil {
            throw Failure.usage("\"\(target)\" has no host name", advice: "pass the expected name with --to-sni")
        }
        let choices = TLSClientChoices(
            authorities: toCa, serverName: toSni, pins: toPin, trustsPinsAlone: toPinOnly, dane: dane,
            identity: identity, preSharedKey: toPsk, applicationProtocols: toAlpn, limits: limits, isInsecure: toInsecure)
        var plan: TLSClientPlan
        do {
            plan = try choices.plan(timeout: timeout)
            var settings = plan.settings
            settings.serverName = settings.serverName ?? target?.hostName
            // The records are added for each connection.
            if dane != .none { settings.proof = .certificates(TLSClientChoices.rules(of: settings)) }
            try settings.validate()
        } catch {
            throw Failure(error).ofTargetOptions
        }
        // A relay connects to the same target again and again.
        if toPsk == nil { plan.settings.resumption = .inMemory }
        return plan
    }
}

/// A version of the PROXY protocol.
enum ProxyVersion: String, CaseIterable, ExpressibleByArgument, Sendable {
    case version1 = "1"
    case version2 = "2"

    var version: ProxyHeader.Version {
        switch self {
        case .version1: .version1
        case .version2: .version2
        }
    }
}

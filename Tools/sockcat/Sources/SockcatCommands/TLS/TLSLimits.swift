internal import ArgumentParser
internal import AsyncSockets

/// The versions of TLS that may be negotiated, on the command line: "1.2", "1.3" or "1.2..1.3".
struct TLSVersionRange: ExpressibleByArgument, Equatable, Sendable {
    let minimum: TLSProtocolVersion
    let maximum: TLSProtocolVersion

    private static let names: [String: TLSProtocolVersion] = ["1.2": .tls12, "1.3": .tls13]

    init?(argument: String) {
        let separator = argument.firstRange(of: "..")
        let first = argument[..<(separator?.lowerBound ?? argument.endIndex)]
        let last = separator.map { argument[$0.upperBound...] } ?? first
        guard let minimum = Self.names[String(first)], let maximum = Self.names[String(last)], minimum <= maximum else {
            return nil
        }
        (self.minimum, self.maximum) = (minimum, maximum)
    }
}

/// The user's limits on what TLS may negotiate.
struct TLSLimits: Sendable {
    var versions: TLSVersionRange?
    /// If empty, the library's default applies.
    var cipherSuites: [String] = []

    var isUnlimited: Bool { versions == nil && cipherSuites.isEmpty }

    var allowsTLS13: Bool { versions.map { $0.maximum >= .tls13 } ?? true }

    /// Returns what is wrong with the limits, or `nil`.
    var contradiction: String? {
        guard let versions, !cipherSuites.isEmpty else { return nil }
        if versions.maximum >= .tls13, !cipherSuites.contains(where: Self.isOfTLS13) {
            return "the versions include TLS 1.3, but none of the cipher suites belongs to it"
        }
        if versions.minimum < .tls13, cipherSuites.allSatisfy(Self.isOfTLS13) {
            return "the versions include TLS 1.2, but none of the cipher suites belongs to it"
        }
        return nil
    }

    func apply<Side>(to settings: inout TLSSettings<Side>) {
        if let versions { (settings.minimumVersion, settings.maximumVersion) = (versions.minimum, versions.maximum) }
        guard !cipherSuites.isEmpty else { return }
        settings.policy.cipherSuites = cipherSuites
        guard versions == nil else { return }
        if cipherSuites.allSatisfy(Self.isOfTLS13) { settings.minimumVersion = .tls13 }
        if !cipherSuites.contains(where: Self.isOfTLS13) { settings.maximumVersion = .tls12 }
    }

    /// The suites of TLS 1.3 do not name a key exchange: TLS_AES_128_GCM_SHA256, but
    /// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
    private static func isOfTLS13(_ suite: String) -> Bool {
        let name = suite.uppercased()
        return name.hasPrefix("TLS_") && !name.contains("_WITH_")
    }
}

/// The options for `TLSLimits`.
struct TLSLimitOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The TLS versions to allow: 1.2, 1.3 or 1.2..1.3. The default is both, or 1.3 with a pre-shared key.",
            valueName: "versions"))
    var tlsVersion: TLSVersionRange?

    @Option(
        help: ArgumentHelp(
            "A cipher suite to allow, by its IANA or OpenSSL name, most preferred first. Repeatable. Without "
                + "--tls-version, only the versions of these suites are allowed.", valueName: "suite"))
    var cipherSuite: [String] = []

    var isUsed: Bool { tlsVersion != nil || !cipherSuite.isEmpty }

    func validate() throws {
        if let contradiction = limits.contradiction {
            throw ValidationError("--tls-version and --cipher-suite cannot be combined like this: \(contradiction)")
        }
    }

    var limits: TLSLimits { TLSLimits(versions: tlsVersion, cipherSuites: cipherSuite) }
}

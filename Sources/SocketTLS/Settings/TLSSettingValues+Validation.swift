internal import COpenSSL
internal import FoundationEssentials

extension TLSSettingValues {
    func validateRole() throws(TLSError) {
        switch role {
        case .client(let serverName):
            _ = try Self.name(serverName)
        case .server:
            if identity == nil, showsCertificates {
                throw Self.invalid("identity is nil, and a server needs one unless clients is .preSharedKeys")
            }
            try validateKindsOfKeys()
        }
    }

    static func name(_ serverName: String?) throws(TLSError) -> ServerName {
        guard let serverName else {
            throw invalid("the connection was not made to a host: use client(serverName:) to say which name to expect")
        }
        return try ServerName(serverName)
    }

    /// OpenSSL keeps one identity for each kind of key: a second identity would silently replace the first.
    private func validateKindsOfKeys() throws(TLSError) {
        guard let identity, !additionalIdentities.isEmpty else { return }
        var kinds: Set<String> = []
        for other in [identity] + additionalIdentities where !kinds.insert(other.privateKey.kind).inserted {
            throw Self.invalid(
                "identity and additionalIdentities have two keys of the kind \(other.privateKey.kind): give one of each kind")
        }
    }

    func validateVersions() throws(TLSError) {
        let oldest = max(minimumVersion, policy.minimumVersion)
        if let maximumVersion, oldest > maximumVersion {
            let setting = minimumVersion < oldest ? "policy.minimumVersion" : "minimumVersion"
            throw Self.invalid("\(setting) is \(oldest), which is newer than maximumVersion, \(maximumVersion)")
        }
    }

    func validateApplicationProtocols() throws(TLSError) {
        var length = 0
        for name in applicationProtocols {
            guard (1...255).contains(name.utf8.count) else {
                throw Self.invalid(
                    "the protocol \"\(String(name.prefix(32)).printable)\" of applicationProtocols has \(name.utf8.count) bytes, and must have 1 to 255"
                )
            }
            length += 1 + name.utf8.count
        }
        guard length <= 0xFFFF - 2 else {
            throw Self.invalid("applicationProtocols has \(length) bytes, and must have at most 65,533: name fewer")
        }
        guard Set(applicationProtocols).count == applicationProtocols.count else {
            throw Self.invalid("applicationProtocols names a protocol twice: name each once")
        }
    }

    func validateRules() throws(TLSError) {
        try TrustRules.validate(rules)
        if case .certificates(let roots) = trustRoots, roots.isEmpty, verifiesCertificates {
            throw Self.invalid("trustRoots is an empty list, which trusts no certificate: give one or more")
        }
    }

    static func validate(_ value: Int, in range: ClosedRange<Int>, _ name: String) throws(TLSError) {
        guard range.contains(value) else {
            throw invalid("\(name) is \(value), and must be from \(range.lowerBound) to \(range.upperBound)")
        }
    }

    static func validate(_ time: Duration, _ name: String) throws(TLSError) {
        guard time > .zero else {
            throw invalid("\(name) is \(time), and must be more than zero")
        }
    }

    static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The TLS settings cannot be used: \(complaint).", operation: "TLSSettings")
    }
}

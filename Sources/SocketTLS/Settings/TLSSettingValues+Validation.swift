internal import COpenSSL
internal import FoundationEssentials

extension TLSSettingValues {
    func validateRole() throws(TLSError) {
        switch role {
        case .client:
            _ = try Self.name(serverName)
        case .server:
            if identity == nil, showsCertificates {
                throw Self.invalid("identity is nil, but a server requires an identity unless clients is .preSharedKeys")
            }
            try validateKindsOfKeys()
        }
    }

    /// The values with a name, which a client may receive from its connection.
    var named: TLSSettingValues {
        var named = self
        if role == .client { named.serverName = serverName ?? "localhost" }
        return named
    }

    static func name(_ serverName: String?) throws(TLSError) -> ServerName {
        guard let serverName else {
            throw invalid("the connection was not made to a host name: pass the expected name to client(serverName:)")
        }
        return try ServerName(serverName)
    }

    /// OpenSSL keeps one identity for each kind of key: a second identity would silently replace the first.
    private func validateKindsOfKeys() throws(TLSError) {
        guard let identity, !additionalIdentities.isEmpty else { return }
        var kinds: Set<String> = []
        for other in [identity] + additionalIdentities where !kinds.insert(other.privateKey.kind).inserted {
            throw Self.invalid(
                "identity and additionalIdentities contain two \(other.privateKey.kind) keys: pass one key of each kind")
        }
    }

    func validateVersions() throws(TLSError) {
        let oldest = oldestVersion
        if let maximumVersion, oldest > maximumVersion {
            let setting = minimumVersion < oldest ? "policy.minimumVersion" : "minimumVersion"
            throw Self.invalid("\(setting) is \(oldest), which is newer than maximumVersion (\(maximumVersion))")
        }
    }

    func validateApplicationProtocols() throws(TLSError) {
        var length = 0
        for name in applicationProtocols {
            guard (1...255).contains(name.utf8.count) else {
                throw Self.invalid(
                    "a protocol name must have 1 to 255 bytes, but \"\(String(name.prefix(32)).printable)\" in applicationProtocols has \(name.utf8.count)"
                )
            }
            length += 1 + name.utf8.count
        }
        guard length <= 0xFFFF - 2 else {
            throw Self.invalid("applicationProtocols must be at most 65,533 bytes long, but is \(length): list fewer protocols")
        }
        guard Set(applicationProtocols).count == applicationProtocols.count else {
            throw Self.invalid("applicationProtocols lists a protocol twice")
        }
    }

    func validateRules() throws(TLSError) {
        try TrustRules.validate(rules)
        if case .certificates(let roots) = trustRoots, roots.isEmpty, verifiesCertificates {
            throw Self.invalid("trustRoots is empty, so no certificate would be trusted: pass at least one root")
        }
    }

    /// Throws `invalidSettings` for a DTLS version, which requires datagrams.
    func validateForStreams() throws(TLSError) {
        for version in [minimumVersion, policy.minimumVersion, maximumVersion].compactMap(\.self) where version.isForDatagrams {
            throw Self.invalid("\(version) requires a datagram transport: use a TLS version such as .tls12")
        }
    }

    /// Throws `invalidSettings` for settings that DTLS 1.2 does not support.
    func validateForDatagrams() throws(TLSError) {
        guard oldestVersion <= .dtls12 else {
            throw Self.invalid(
                "only DTLS 1.2 is supported, but minimumVersion or the policy requires \(oldestVersion): set it to .dtls12")
        }
        if let maximumVersion, maximumVersion < .tls12 { throw Self.invalid("\(maximumVersion) is older than DTLS 1.2") }
        try validateFeaturesForDatagrams()
    }

    static func validate(_ value: Int, in range: ClosedRange<Int>, _ name: String) throws(TLSError) {
        guard range.contains(value) else {
            throw invalid("\(name) must be from \(range.lowerBound) to \(range.upperBound), but is \(value)")
        }
    }

    static func validate(_ time: Duration, _ name: String) throws(TLSError) {
        guard time > .zero else {
            throw invalid("\(name) must be greater than zero, but is \(time)")
        }
    }

    static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the TLS settings cannot be used: \(complaint)", operation: "TLSSettings")
    }
}

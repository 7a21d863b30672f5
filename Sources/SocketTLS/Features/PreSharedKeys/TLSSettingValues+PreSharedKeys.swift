extension TLSSettings where Side == TLSClient {
    /// Settings of a client that accepts a server because it has the same key, and for no other reason: see
    /// `TLSPreSharedKey`. `TLSSession.preSharedKeyIdentity` shows it.
    ///
    /// No certificate is verified, so `serverName` only tells the server by SNI which of its names is meant.
    /// TLS 1.3 is the oldest version, because a key should not serve two versions (RFC 8446, appendix E.7).
    /// For a server that has only TLS 1.2, set `minimumVersion` and `maximumVersion`.
    public static func client(serverName: String, preSharedKey: TLSPreSharedKey) -> TLSClientSettings {
        var settings = client(serverName: serverName)
        settings.proof = .preSharedKey(preSharedKey)
        settings.minimumVersion = .tls13
        return settings
    }
}

extension TLSSettings where Side == TLSServer {
    /// Settings of a server that accepts clients by pre-shared keys, and needs no identity of its own. For
    /// keys or certificates set `identity` too, and `clients`.
    ///
    /// TLS 1.3 is the oldest version, as for `client(serverName:preSharedKey:)`.
    public static func server(preSharedKeys: TLSPreSharedKeys) -> TLSServerSettings {
        var settings = TLSServerSettings(TLSSettingValues(role: .server, identity: nil, bytesBufferedAtUpgrade: .feedToTLS))
        settings.clients = .preSharedKeys(preSharedKeys)
        settings.minimumVersion = .tls13
        return settings
    }
}

extension TLSSettingValues {
    /// The keys of `proof`; nil sets it back to certificates.
    package var preSharedKeys: TLSPreSharedKeys? {
        get { proof.preSharedKeys }
        set { proof = newValue.map { .preSharedKeys($0) } ?? .certificates }
    }

    /// Those of `TLSClients` with pre-shared keys.
    func clients(by keys: TLSPreSharedKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch (keys.use, clientCertificates) {
        case (.required, _): .preSharedKeys(given)
        case (.preferred, .none): .preSharedKeysOrAnyone(given, tickets: tickets)
        case (.preferred, _): .preSharedKeysOrCertificates(given, demand, rules, tickets: tickets)
        }
    }
}

extension TLSProof {
    var preSharedKeys: TLSPreSharedKeys? {
        if case .preSharedKeys(let keys) = self { keys } else { nil }
    }
}

extension TLSPreSharedKeys {
    /// Without a key the peer is refused.
    var requiredKind: KeyProof.Kind? { use == .required ? .preSharedKey : nil }

    func validate(in settings: TLSSettingValues) throws(TLSError) {
        try settings.requireNoSessionOfOthers()
        if max(settings.minimumVersion, settings.policy.minimumVersion) < .tls13 { try validateForTLS12() }
    }

    private func validateForTLS12() throws(TLSError) {
        guard hash == .sha256 else {
            throw TLSSettingValues.invalid(
                "the pre-shared key is for SHA-384, which TLS 1.2 has not: set minimumVersion to .tls13")
        }
        for key in listed ?? [] {
            guard key.identity.count <= TLSPreSharedKey.identityLimitOfTLS12, !key.identity.contains(0) else {
                throw TLSSettingValues.invalid(
                    "in TLS 1.2 the identity of a pre-shared key has at most 128 bytes and no zero: set minimumVersion to .tls13")
            }
        }
    }
}

// MARK: - Cipher suites

extension TLSPreSharedKeys {
    /// The only one of TLS 1.2 with a pre-shared key, an ephemeral key and an AEAD that OpenSSL has (RFC
    /// 7905). OpenSSL lacks those with AES-GCM (RFC 8442), and those with CBC are left out.
    private static let suiteOfTLS12 = "ECDHE-PSK-CHACHA20-POLY1305"

    /// Leaves the suites of TLS 1.3 with the hash algorithm of the keys.
    func restrict(_ suites: inout CipherSuiteNames) throws(TLSError) {
        suites.tls13.removeAll { !$0.hasSuffix(hash.suffix) }
        suites.tls12 = (suites.allowsTLS12 ? [Self.suiteOfTLS12] : []) + (use == .required ? [] : suites.tls12)
        if suites.tls13.isEmpty, suites.allowsTLS13 {
            throw ContextParameters.invalid(
                "cipherSuites has none for TLS 1.3 with \(hash.suffix), as the pre-shared keys need")
        }
    }
}

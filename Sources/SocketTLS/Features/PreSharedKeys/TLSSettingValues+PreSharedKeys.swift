extension TLSSettingValues {
    package var preSharedKeys: TLSPreSharedKeys? {
        get { proof.preSharedKeys }
        set { proof = newValue.map { .preSharedKeys($0) } ?? .certificates }
    }

    func clients(by keys: TLSPreSharedKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch (keys.use, clientCertificates) {
        case (.required, _): .preSharedKeys(given)
        case (.preferred, .none): .preSharedKeysOrAnyone(given)
        case (.preferred, _): .preSharedKeysOrCertificates(given, demand, rules)
        }
    }
}

extension TLSPreSharedKeys {
    /// The kind of key that the peer must have; `nil` if other proof is accepted.
    var requiredKind: KeyProof.Kind? { use == .required ? .preSharedKey : nil }

    func validate(in settings: TLSSettingValues, over transport: TLSTransport) throws(TLSError) {
        if suspends, transport == .stream {
            throw TLSSettingValues.invalid(
                "TLSPreSharedKeys.init(lookUp:) supports only DTLS: use TLSServerNames to look up keys for TLS 1.3")
        }
        try settings.requireNoSessionOfOthers()
        guard settings.certificateType == .x509 else {
            throw TLSSettingValues.invalid("presentsRawPublicKey cannot be combined with pre-shared keys: set it to false")
        }
        if settings.oldestVersion < .tls13 { try validateForTLS12(over: transport) }
    }

    private func validateForTLS12(over transport: TLSTransport) throws(TLSError) {
        let isStream = transport == .stream
        guard hash == .sha256 else {
            let remedy = isStream ? "set minimumVersion to .tls13" : "use a key for SHA-256 with DTLS"
            throw TLSSettingValues.invalid("the pre-shared key uses SHA-384, which requires TLS 1.3: \(remedy)")
        }
        for key in listed ?? [] {
            guard key.identity.count <= TLSPreSharedKey.identityLimitOfTLS12, !key.identity.contains(0) else {
                let remedy = isStream ? "set minimumVersion to .tls13" : "choose another identity for DTLS"
                throw TLSSettingValues.invalid(
                    "with \(isStream ? "TLS" : "DTLS") 1.2, an identity can have at most 128 bytes and no zero bytes: \(remedy)")
            }
        }
    }
}

// MARK: - Cipher suites

extension TLSPreSharedKeys {
    /// The only TLS 1.2 cipher suite in OpenSSL with a pre-shared key, an ephemeral key exchange and an
    /// AEAD (RFC 7905). OpenSSL lacks the AES-GCM suites (RFC 8442). CBC suites are deliberately omitted.
    private static let suiteOfTLS12 = "ECDHE-PSK-CHACHA20-POLY1305"
    /// The TLS 1.2 suites with a pre-shared key and without an ephemeral key exchange, for constrained
    /// devices (`TLSPolicy.constrainedDevices`). Strongest first (RFC 5487, section 2; RFC 6655, section 4).
    private static let constrainedSuites = ["PSK-AES128-GCM-SHA256", "PSK-AES128-CCM8"]

    /// Removes the TLS 1.3 suites with a different hash algorithm, and adds the TLS 1.2 suites for
    /// pre-shared keys. If a key is required, no other TLS 1.2 suite remains.
    func restrict(_ suites: inout CipherSuiteNames, _ policy: TLSPolicy) throws(TLSError) {
        suites.tls13.removeAll { !$0.hasSuffix(hash.suffix) }
        let own = [Self.suiteOfTLS12] + (policy.allowsConstrainedDevices ? Self.constrainedSuites : [])
        suites.tls12 = (suites.allowsTLS12 ? own : []) + (use == .required ? [] : suites.tls12)
        if suites.tls13.isEmpty, suites.allowsTLS13 {
            throw ContextParameters.invalid(
                "cipherSuites has no TLS 1.3 suite with \(hash.suffix), which the pre-shared keys require")
        }
    }
}

extension TLSSettings where Side == TLSRole.Client {
    /// Returns settings for a client that accepts a server only if both have the same key: see
    /// `TLSPreSharedKey`. After the handshake, `TLSSession.preSharedKeyIdentity` contains the key's identity.
    ///
    /// No certificate is verified, so `serverName` is only sent to the server by SNI. The minimum version is
    /// TLS 1.3 for streams, because a key should not be used with two versions (RFC 8446, appendix E.7), and
    /// DTLS 1.2 for datagrams. For a server that supports only TLS 1.2, set `minimumVersion` and
    /// `maximumVersion`.
    public static func client(serverName: String, preSharedKey: TLSPreSharedKey) -> TLSClientSettings {
        var settings = client(serverName: serverName)
        settings.proof = .preSharedKey(preSharedKey)
        (settings.values.minimumVersion, settings.values.isMinimumForStreams) = (.tls13, true)
        return settings
    }
}

extension TLSSettings where Side == TLSRole.Server {
    /// Returns settings for a server that accepts clients with pre-shared keys and needs no identity. To
    /// accept clients with either keys or certificates, set `identity` and `clients` too.
    ///
    /// The minimum version is TLS 1.3, as in `client(serverName:preSharedKey:)`.
    public static func server(preSharedKeys: TLSPreSharedKeys) -> TLSServerSettings {
        var settings = TLSServerSettings(TLSSettingValues(role: .server, identity: nil, earlyPlaintext: .feedToTLS))
        settings.clients = .preSharedKeys(preSharedKeys)
        (settings.values.minimumVersion, settings.values.isMinimumForStreams) = (.tls13, true)
        return settings
    }
}

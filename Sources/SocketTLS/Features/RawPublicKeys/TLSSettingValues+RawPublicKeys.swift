internal import COpenSSL

extension TLSSettings {
    /// Whether this side presents the public key of its `identity` without the certificate (RFC 7250), which
    /// the peer must know. Defaults to `false`. A peer that does not support raw public keys receives the
    /// certificate instead.
    ///
    /// Requires OpenSSL 3.2 or newer and an `identity`. A server then issues no session tickets, and a client
    /// resumes no sessions. Cannot be combined with pre-shared keys or with requests for client certificates
    /// after the handshake.
    public var presentsRawPublicKey: Bool {
        get { values.presentsRawPublicKey }
        set { values.presentsRawPublicKey = newValue }
    }
}

extension TLSSettingValues {
    package var rawPublicKeys: TLSRawPublicKeys? {
        get { proof.rawPublicKeys }
        set { proof = newValue.map { .rawPublicKeys($0) } ?? .certificates }
    }

    func clients(by keys: TLSRawPublicKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch keys.use {
        case .required: .rawPublicKeys(given, demand)
        case .preferred: .rawPublicKeysOrCertificates(given, demand, rules)
        }
    }

    /// Throws for settings that do not work together with a raw public key of either side.
    func validateRawPublicKeys() throws(TLSError) {
        guard presentsRawPublicKey || proof.rawPublicKeys != nil else { return }
        try TLSRawPublicKeys.requireSupport()
        try requireNoSessionOfOthers()
        if presentsRawPublicKey {
            guard identity != nil else {
                throw Self.invalid("identity is nil, but presentsRawPublicKey is true: set identity")
            }
            guard preSharedKeys == nil else {
                throw Self.invalid("presentsRawPublicKey cannot be combined with pre-shared keys: set it to false")
            }
        }
        if tickets != .none {
            throw Self.invalid("raw public keys cannot be combined with session tickets: set sessionTickets to .none")
        }
        if earlyData != nil {
            throw Self.invalid("earlyData requires session resumption, which raw public keys do not support: set it to nil")
        }
        if allowsPostHandshakeAuthentication {
            throw Self.invalid("raw public keys do not support allowsPostHandshakeAuthentication: set it to false")
        }
        if requestsClientCertificates {
            throw Self.invalid("clients is .certificatesOnRequest, which raw public keys do not support")
        }
    }
}

extension TLSProof {
    var rawPublicKeys: TLSRawPublicKeys? {
        if case .rawPublicKeys(let keys) = self { keys } else { nil }
    }
}

extension TLSRawPublicKeys {
    /// The kind of key that the peer must have; `nil` if other proof is accepted.
    var requiredKind: KeyProof.Kind? { use == .required ? .rawPublicKey : nil }

    fileprivate static func requireSupport() throws(TLSError) {
        if isSupported { return }
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? "another"
        throw TLSSettingValues.invalid("raw public keys require OpenSSL 3.2 or newer, but the loaded version is \(version)")
    }
}

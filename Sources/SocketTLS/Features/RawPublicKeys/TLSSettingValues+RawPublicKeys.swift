internal import COpenSSL

extension TLSSettingValues {
    package var rawPublicKeys: TLSRawPublicKeys? {
        get { proof.rawPublicKeys }
        set { proof = newValue.map { .rawPublicKeys($0) } ?? .certificates }
    }

    func clients(by keys: TLSRawPublicKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch (keys.expectsKeys, clientCertificates, keys.use) {
        case (false, .none, _): .anyoneWithOwnRawPublicKey
        case (false, _, _): .certificatesWithOwnRawPublicKey(demand, rules)
        case (true, _, .required): .rawPublicKeys(given, demand)
        case (true, _, .preferred): .rawPublicKeysOrCertificates(given, demand, rules)
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
    var requiredKind: KeyProof.Kind? { expectsKeys && use == .required ? .rawPublicKey : nil }

    func validate(in settings: TLSSettingValues) throws(TLSError) {
        try Self.requireSupport()
        try settings.requireNoSessionOfOthers()
        if showsOwnKey, settings.identity == nil {
            throw TLSSettingValues.invalid("identity is nil, but its raw public key is required: set identity")
        }
        if settings.earlyData != nil {
            throw TLSSettingValues.invalid(
                "earlyData requires session resumption, which raw public keys do not support: set it to nil")
        }
        if settings.allowsPostHandshakeAuthentication {
            throw TLSSettingValues.invalid("raw public keys do not support allowsPostHandshakeAuthentication: set it to false")
        }
    }

    private static func requireSupport() throws(TLSError) {
        if isSupported { return }
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? "another"
        throw TLSSettingValues.invalid("raw public keys require OpenSSL 3.2 or newer, but the loaded version is \(version)")
    }
}

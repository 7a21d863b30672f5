internal import COpenSSL

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

    /// Throws if either side uses a raw public key and another setting is incompatible with it.
    func validateCertificateTypes() throws(TLSError) {
        guard certificateType == .rawPublicKey || proof.rawPublicKeys != nil else { return }
        try TLSRawPublicKeys.requireSupport()
        try requireNoSessionOfOthers()
        if certificateType == .rawPublicKey, identity == nil {
            throw Self.invalid("identity is nil, but presentsRawPublicKey is true: set identity")
        }
        if tickets != .none {
            throw Self.invalid("raw public keys cannot be combined with sessionTickets")
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

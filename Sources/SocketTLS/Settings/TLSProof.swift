/// How the two sides of a connection prove their identities: the common part of `TLSServerProof` and
/// `TLSClients`.
package enum TLSProof: Sendable, Hashable {
    case certificates
    case rawPublicKeys(TLSRawPublicKeys)
    case preSharedKeys(TLSPreSharedKeys)
    case dane(TLSDANE)

    var rawPublicKeys: TLSRawPublicKeys? {
        if case .rawPublicKeys(let keys) = self { keys } else { nil }
    }

    var preSharedKeys: TLSPreSharedKeys? {
        if case .preSharedKeys(let keys) = self { keys } else { nil }
    }

    /// The part that connections of one context have in common.
    var ofContext: TLSProof {
        if case .dane(let dane) = self { .dane(dane.withoutRecords) } else { self }
    }

    /// Whether a client's session can be resumed. OpenSSL verifies nothing when it resumes a session.
    var allowsResumption: Bool {
        switch self {
        case .certificates: true
        case .dane(let dane): !dane.acceptsRawPublicKeys
        case .rawPublicKeys, .preSharedKeys: false
        }
    }

    /// The kind of key that the peer must have. `nil` if the peer may use a certificate or no proof.
    var requiredKey: KeyProof.Kind? {
        switch self {
        case .certificates, .dane: nil
        case .rawPublicKeys(let keys): keys.requiredKind
        case .preSharedKeys(let keys): keys.requiredKind
        }
    }

    /// Whether the keys need PSK cipher suites, which a policy cannot contain.
    var bringsCipherSuites: Bool { if case .preSharedKeys = self { true } else { false } }

    /// Removes the cipher suites that do not work with the keys, and adds the suite that the keys need in TLS
    /// 1.2. Throws if TLS 1.3 is allowed but no suitable suite remains.
    func restrict(_ suites: inout CipherSuiteNames, _ policy: TLSPolicy) throws(TLSError) {
        if case .preSharedKeys(let keys) = self { try keys.restrict(&suites, policy) }
    }

    /// Sets the certificate types that this side accepts, or lets OpenSSL look up its pre-shared keys.
    func expect(on context: OpaquePointer, isServer: Bool, allowsTLS12: Bool) throws(TLSError) {
        switch self {
        case .certificates: break
        case .rawPublicKeys(let keys): try keys.expect(on: context, isServer: isServer)
        case .preSharedKeys: TLSPreSharedKeys.install(on: context, isServer: isServer, allowsTLS12: allowsTLS12)
        case .dane: try TLSDANE.prepare(context)
        }
    }

    /// Lets the server of one connection send a raw public key, if OpenSSL supports it.
    static func acceptRawPublicKeys(on ssl: OpaquePointer) throws(TLSError) { try TLSRawPublicKeys.accept(on: ssl) }

    /// Whether the completed handshake of `ssl` used a pre-shared key.
    static func usesSharedKey(_ ssl: OpaquePointer) -> Bool { PreSharedKeyNegotiation.isUsed(on: ssl) }

    static func showsCertificate(_ ssl: OpaquePointer) -> Bool {
        !usesSharedKey(ssl) && !TLSRawPublicKeys.areShownByServer(on: ssl)
    }
}

extension TLSProof: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .certificates: fields.append(30)
        case .rawPublicKeys(let keys):
            fields.append(31)
            keys.append(to: &fields)
        case .preSharedKeys(let keys):
            fields.append(32)
            keys.append(to: &fields)
        case .dane(let dane):
            fields.append(33)
            dane.append(to: &fields)
        }
    }
}

/// The form in which a side presents its identity (RFC 7250, section 3).
package enum TLSCertificateType: Sendable, Hashable {
    /// A certificate chain.
    case x509
    /// The public key alone, for peers that support it.
    case rawPublicKey

    /// Sets the types that this side can present.
    func present(on context: OpaquePointer, isServer: Bool) throws(TLSError) {
        if self == .rawPublicKey { try TLSRawPublicKeys.present(on: context, isServer: isServer) }
    }
}

extension TLSCertificateType: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .x509: fields.append(40)
        case .rawPublicKey: fields.append(41)
        }
    }
}

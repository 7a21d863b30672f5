/// How the two sides of a connection prove who they are: what is the same in `TLSServerProof` and
/// `TLSClients`.
package enum TLSProof: Sendable, Hashable {
    case certificates
    case rawPublicKeys(TLSRawPublicKeys)
    case preSharedKeys(TLSPreSharedKeys)

    /// The kind of key without which the peer is refused; nil if a certificate, or nothing, may do.
    var requiredKey: KeyProof.Kind? {
        switch self {
        case .certificates: nil
        case .rawPublicKeys(let keys): keys.requiredKind
        case .preSharedKeys(let keys): keys.requiredKind
        }
    }

    /// Whether there is a cipher suite for the keys that no policy names.
    var bringsCipherSuites: Bool { if case .preSharedKeys = self { true } else { false } }

    /// Leaves the cipher suites that go with the keys. An empty list has none for its version.
    func restrict(_ suites: inout CipherSuiteNames) throws(TLSError) {
        if case .preSharedKeys(let keys) = self { try keys.restrict(&suites) }
    }

    /// Whether the handshake of `ssl`, which is complete, was made with a key that both sides had before.
    static func usesSharedKey(_ ssl: OpaquePointer) -> Bool { PreSharedKeyNegotiation.isUsed(on: ssl) }

    /// Whether the server has shown a certificate in the handshake of `ssl`, which is complete.
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
        }
    }
}

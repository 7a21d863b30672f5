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

    func validate(in settings: TLSSettingValues) throws(TLSError) {
        switch self {
        case .certificates: break
        case .rawPublicKeys(let keys): try keys.validate(in: settings)
        case .preSharedKeys(let keys): try keys.validate(in: settings)
        }
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

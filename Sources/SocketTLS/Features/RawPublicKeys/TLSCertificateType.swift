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

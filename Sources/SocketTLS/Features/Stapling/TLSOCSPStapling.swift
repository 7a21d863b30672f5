/// Whether a client asks the server for proof that its certificate is not revoked: an OCSP response that
/// the server staples to the handshake (RFC 6066, section 8; RFC 8446, section 4.4.2.1).
///
/// A response counts if the issuer of the certificate has signed it, or someone to whom it has delegated
/// that, and if it is for this certificate and for now. The trust callback is asked before, and cannot
/// overrule it.
public enum TLSOCSPStapling: Sendable, Hashable {
    /// The client does not ask.
    case none
    /// The client asks, and refuses a bad response. Without a response it goes on, unless the certificate
    /// says that there must be one (RFC 7633).
    case requested
    /// The client asks, and refuses a server without a good response.
    case required
}

extension TLSOCSPStapling: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .none: fields.append(20)
        case .requested: fields.append(21)
        case .required: fields.append(22)
        }
    }
}

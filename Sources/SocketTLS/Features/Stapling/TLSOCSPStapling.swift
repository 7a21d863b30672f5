/// Whether a client requests proof that the server's certificate is not revoked: an OCSP response that
/// the server staples to the handshake (RFC 6066, section 8; RFC 8446, section 4.4.2.1).
///
/// A response is accepted if it is signed by the certificate's issuer, or by a delegate that the issuer
/// has authorized, and if it applies to this certificate and is valid now. The trust callback is called
/// before this check, and cannot overrule it.
public enum TLSOCSPStapling: Sendable, Hashable {
    /// The client does not request a response.
    case none
    /// The client requests a response, and rejects an invalid response. Without a response the handshake
    /// continues, unless the certificate requires a response (RFC 7633).
    case requested
    /// The client requests a response, and rejects a server without a valid response.
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

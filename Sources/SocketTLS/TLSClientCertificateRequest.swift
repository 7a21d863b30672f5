/// A server's request for the client's certificate during a handshake. See
/// `TLSSession.clientCertificateRequest` and `TLSError.clientCertificateRequest`.
///
/// A request does not state whether the server also accepts clients without a certificate.
public struct TLSClientCertificateRequest: Sendable, Hashable {
    /// The names of the authorities from which the server accepts certificates, in the format of RFC 4514.
    /// Empty if the server named no authorities.
    public let authorities: [String]

    /// Creates a request that was never received, for tests of code that inspects requests.
    public init(authorities: [String] = []) {
        self.authorities = authorities
    }
}

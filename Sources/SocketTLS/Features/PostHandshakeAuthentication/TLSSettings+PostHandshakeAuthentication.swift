extension TLSSettings where Side == TLSRole.Client {
    /// Whether the client allows the server to request the client's certificate after the handshake (RFC
    /// 8446, section 4.6.2). Defaults to false.
    ///
    /// Some servers request a certificate only once they know which resource the client has requested. The
    /// client responds while it reads, and sends the certificate of `identity`, or no certificate if
    /// `identity` is `nil`. Requires TLS 1.3.
    public var allowsPostHandshakeAuthentication: Bool {
        get { values.allowsPostHandshakeAuthentication }
        set { values.allowsPostHandshakeAuthentication = newValue }
    }
}

extension TLSError.Code {
    /// The server cannot request a client certificate after the handshake, because the connection does
    /// not use TLS 1.3 or the client did not offer post-handshake authentication.
    public static let postHandshakeAuthenticationUnavailable = TLSError.Code(
        "postHandshakeAuthenticationUnavailable", fault: .peer)
    /// The previous request for a client certificate is still pending.
    public static let certificateRequestPending = TLSError.Code("certificateRequestPending", fault: .caller)
}

extension TLSSettings where Side == TLSClient {
    /// Whether a client lets the server ask for its certificate after the handshake (RFC 8446, section
    /// 4.6.2); false by default.
    ///
    /// Some servers ask when they know what the client wants. The client answers while it reads: with
    /// `identity`, or with no certificate when it has none. Only TLS 1.3 has it.
    public var allowsPostHandshakeAuthentication: Bool {
        get { values.allowsPostHandshakeAuthentication }
        set { values.allowsPostHandshakeAuthentication = newValue }
    }
}

extension TLSError.Code {
    /// The client cannot be asked for a certificate after the handshake: the connection does not use TLS
    /// 1.3, or the client has not offered it.
    public static let postHandshakeAuthenticationUnavailable = TLSError.Code(
        "postHandshakeAuthenticationUnavailable", blame: .peer)
    /// The client was asked for a certificate before, and that request is not over.
    public static let certificateRequestPending = TLSError.Code("certificateRequestPending", blame: .caller)
}

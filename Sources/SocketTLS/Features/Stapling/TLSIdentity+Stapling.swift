internal import COpenSSL
internal import Glibc

extension TLSIdentity {
    /// Returns this identity with an OCSP response (RFC 6960) for its certificate, in DER. A server staples
    /// the response for clients that request it (RFC 6066, section 8; RFC 8446, section 4.4.2.1).
    ///
    /// The response must be signed by the certificate's issuer, or by a delegate that the issuer has
    /// authorized, and it must state that the certificate is good now. If `issuer` is `nil`, the second
    /// certificate in the chain is used.
    ///
    /// A response expires, usually after a week, and a server does not staple an expired response. Obtain a
    /// new response before then, and pass the new identity to the listener with
    /// `SocketListener.replaceTLS(_:)` or `reloadTLS`. The library never contacts a responder automatically.
    ///
    /// Throws `invalidCertificate` if `issuer` is `nil` and the chain does not contain the issuer,
    /// `certificateRevoked` if the response states that the certificate is revoked, and `certificateRejected`
    /// for any other response that a client would reject.
    public func stapling(ocspResponse: [UInt8], issuer: TLSCertificate? = nil) throws(TLSError) -> TLSIdentity {
        guard let leaf = certificateChain.first, let issuer = issuer ?? certificateChain.dropFirst().first else {
            throw TLSError(
                .invalidCertificate, "the chain does not contain the issuer of the certificate: pass the issuer",
                operation: "TLSIdentity")
        }
        let status = StapledStatus(of: leaf, issuer: issuer, isRequired: true, at: Int(time(nil)))
        let fault = ocspResponse.withUnsafeBufferPointer { status.fault(in: $0) }
        if case .untrusted(let reason, let code, _) = fault {
            throw TLSError(TLSError.Code(verifyCode: code), reason, operation: "TLSIdentity")
        }
        var identity = self
        identity.stapledResponse = StapledResponse(bytes: ocspResponse, end: status.end(of: ocspResponse))
        return identity
    }
}

/// The stapled responses of a server's identities, for OpenSSL's callback.
final class StapledResponses: Sendable {
    private let responses: [(certificate: TLSCertificate, response: StapledResponse)]

    init?(of identities: [TLSIdentity]) {
        responses = identities.compactMap { identity in
            guard let certificate = identity.certificateChain.first else { return nil }
            return identity.stapledResponse.map { (certificate, $0) }
        }
        if responses.isEmpty { return nil }
    }

    /// Lets the server staple the responses. The context must not outlive this object.
    func staple(on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_status_arg") {
            COpenSSL_CTX_setStatusArgument(context, Unmanaged.passUnretained(self).toOpaque())
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_status_cb") {
            COpenSSL_CTX_setStatusCallback(context) { ssl, responses in
                guard let ssl, let responses else { return SSL_TLSEXT_ERR_NOACK }
                return Unmanaged<StapledResponses>.fromOpaque(responses).takeUnretainedValue().answer(ssl)
            }
        }
    }

    /// Staples no response if the identity has no response or the response has expired.
    private func answer(_ ssl: OpaquePointer) -> Int32 {
        guard let shown = SSL_get_certificate(ssl),
            let response = responses.first(where: { X509_cmp($0.certificate.handle.x509, shown) == 0 })?.response,
            response.end > time(nil), COpenSSL_setStatusResponse(ssl, response.bytes, response.bytes.count) > 0
        else { return SSL_TLSEXT_ERR_NOACK }
        return SSL_TLSEXT_ERR_OK
    }
}

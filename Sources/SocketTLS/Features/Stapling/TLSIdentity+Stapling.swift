internal import COpenSSL
internal import Glibc

extension TLSIdentity {
    /// The identity with an OCSP response (RFC 6960) about its certificate, in DER: a server staples it for
    /// clients that ask (RFC 6066, section 8; RFC 8446, section 4.4.2.1).
    ///
    /// The issuer of the certificate must have signed the response, or someone to whom it has delegated that,
    /// and the response must say that the certificate is good now. `issuer` is the second of the chain if you
    /// leave it out.
    ///
    /// A response ends, usually after a week, and a server does not staple one that has ended. Get a new one
    /// in time, and give it to the listener with `SocketListener.replaceTLS(_:)` or `reloadTLS`. The library
    /// asks no responder by itself.
    ///
    /// Throws `invalidCertificate` if the response proves nothing, `certificateRevoked` if it says that the
    /// certificate is revoked, and `certificateRejected` for anything else that a client would refuse.
    public func stapling(ocspResponse: [UInt8], issuer: Certificate? = nil) throws(TLSError) -> TLSIdentity {
        guard let leaf = certificateChain.first, let issuer = issuer ?? certificateChain.dropFirst().first else {
            throw TLSError(
                .invalidCertificate, "The issuer of the certificate is needed, because it is not in the chain.",
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

/// The responses of a server's identities, for OpenSSL's callback.
final class StapledResponses: Sendable {
    private let responses: [(certificate: Certificate, response: StapledResponse)]

    /// Nil without any.
    init?(of identities: [TLSIdentity]) {
        responses = identities.compactMap { identity in
            guard let certificate = identity.certificateChain.first else { return nil }
            return identity.stapledResponse.map { (certificate, $0) }
        }
        if responses.isEmpty { return nil }
    }

    /// Has the server staple them. The context must not outlive this object.
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

    /// Nothing for an identity without a response, and for a response that has ended.
    private func answer(_ ssl: OpaquePointer) -> Int32 {
        guard let shown = SSL_get_certificate(ssl),
            let response = responses.first(where: { X509_cmp($0.certificate.handle.x509, shown) == 0 })?.response,
            response.end > time(nil), COpenSSL_setStatusResponse(ssl, response.bytes, response.bytes.count) > 0
        else { return SSL_TLSEXT_ERR_NOACK }
        return SSL_TLSEXT_ERR_OK
    }
}

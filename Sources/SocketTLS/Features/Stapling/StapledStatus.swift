// Rules for stapled OCSP responses (RFC 6960, 3.2 and 4.2.2.2):
//  1. The response must be signed by the certificate's issuer in the verified chain, or by a delegate
//     with a certificate that this issuer signed for the purpose. No other trust root is used.
//  2. The response must contain a status for this certificate that is valid now. A status without a next
//     update is rejected.
//  3. The status "unknown" is not accepted.
//  4. The response must have an ordinary size, and no certificate in it may be more expensive to process than
//     the certificates that the peer may send. In TLS 1.2 the response is a separate message, and any
//     attacker on the path could append certificates after its signature.
//  5. A certificate can require a response by its TLS feature extension (RFC 7633). Without a response,
//     such a certificate is rejected.

internal import COpenSSL
internal import FoundationEssentials
internal import Glibc

final class StapledStatus {
    let leaf: TLSCertificate
    /// The issuer of `leaf`; `nil` if `leaf` itself is the trust anchor, in which case no issuer can sign
    /// a response.
    private let issuer: TLSCertificate?
    private let isRequired: Bool
    private let time: Int

    /// The tolerated difference between clocks, in seconds.
    private static let leeway = 300

    /// Returns `nil` for an empty chain, which OpenSSL never reports as verified.
    ///
    /// - Parameter time: Seconds since 1970; `nil` for the current time.
    init?(_ chain: VerifiedChain, isRequired: Bool, at time: Int?) {
        let certificates = chain.certificates.prefix(2).map { TLSCertificate(sharing: $0) }
        guard let leaf = certificates.first else { return nil }
        self.leaf = leaf
        issuer = certificates.dropFirst().first
        self.isRequired = isRequired || Self.mustStaple(leaf)
        self.time = time ?? Glibc.time(nil)
    }

    init(of leaf: TLSCertificate, issuer: TLSCertificate, isRequired: Bool, at time: Int) {
        self.leaf = leaf
        self.issuer = issuer
        self.isRequired = isRequired
        self.time = time
    }

    /// Returns when the status of the certificate expires, in seconds since 1970, or when the certificate
    /// that signed the response expires, if that is earlier. Returns the time of the check if the response
    /// contains no expiry time for the certificate.
    func end(of response: [UInt8]) -> Int {
        guard let issuer, let basic = response.withUnsafeBufferPointer({ Self.decode($0) }) else { return time }
        defer { OCSP_BASICRESP_free(basic) }
        var end: COpenSSL_MutableTime?
        guard let answer = answer(in: basic, from: issuer) else { return time }
        OCSP_single_get0_status(answer, nil, nil, nil, &end)
        var (days, seconds): (Int32, Int32) = (0, 0)
        guard let end, let now = ASN1_TIME_set(nil, time) else { return time }
        defer { ASN1_STRING_free(now) }
        guard ASN1_TIME_diff(&days, &seconds, now, end) == 1 else { return time }
        return min(time + Int(days) * 86_400 + Int(seconds), Self.endOfSigner(in: basic, from: issuer) ?? .max)
    }

    /// The issuer's own certificate takes precedence over a copy in the response, as in the check of the
    /// signature. The signature does not cover such a copy, so its dates may be wrong.
    private static func endOfSigner(in basic: OpaquePointer, from issuer: TLSCertificate) -> Int? {
        OpenSSLCall.attempt { () -> Int? in
            let certificates = OPENSSL_sk_new_null()
            defer { OPENSSL_sk_free(certificates) }
            var signer: OpaquePointer?
            guard OPENSSL_sk_push(certificates, UnsafeRawPointer(issuer.handle.x509)) > 0,
                OCSP_resp_get0_signer(basic, &signer, certificates) == 1, let signer
            else { return nil }
            return Int(TLSCertificate(sharing: signer).notAfter.timeIntervalSince1970)
        }.value
    }

    /// Returns the fault in the response, or the fault that a required response is missing. Returns `nil` if
    /// it finds no fault.
    func fault(in response: UnsafeBufferPointer<UInt8>?) -> PeerTrust.Verdict? {
        guard let response else {
            return isRequired ? fault("was sent without the required OCSP response", X509_V_ERR_OCSP_VERIFY_NEEDED) : nil
        }
        guard let basic = Self.decode(response) else {
            return fault("was sent with an OCSP response that contains no status", X509_V_ERR_OCSP_VERIFY_FAILED)
        }
        defer { OCSP_BASICRESP_free(basic) }
        guard let issuer, isSigned(basic, by: issuer) else {
            return fault("was sent with an OCSP response that its issuer did not sign", X509_V_ERR_OCSP_VERIFY_FAILED)
        }
        guard let answer = answer(in: basic, from: issuer) else {
            return fault("was sent with an OCSP response for other certificates", X509_V_ERR_OCSP_VERIFY_FAILED)
        }
        return fault(of: answer)
    }

    private func fault(of answer: OpaquePointer) -> PeerTrust.Verdict? {
        var (begin, end): (COpenSSL_MutableTime?, COpenSSL_MutableTime?)
        let status = OCSP_single_get0_status(answer, nil, nil, &begin, &end)
        // The function returns -1 for an earlier time, 1 for a later time, and -2 for an error.
        guard let begin, let end, [-1, 0].contains(ASN1_TIME_cmp_time_t(begin, time + Self.leeway)),
            [0, 1].contains(ASN1_TIME_cmp_time_t(end, time - Self.leeway))
        else { return fault("was sent with an OCSP response that is expired or not yet valid", X509_V_ERR_OCSP_VERIFY_FAILED) }
        switch status {
        case V_OCSP_CERTSTATUS_GOOD: return nil
        case V_OCSP_CERTSTATUS_REVOKED: return fault("is revoked, according to its OCSP response", X509_V_ERR_CERT_REVOKED)
        default: return fault("is unknown to its issuer, according to its OCSP response", X509_V_ERR_OCSP_CERT_UNKNOWN)
        }
    }

    private func fault(_ complaint: String, _ code: Int32) -> PeerTrust.Verdict {
        .untrusted(reason: "the certificate of \"\(leaf.displayName)\" \(complaint)", code: code, depth: 0)
    }

    /// The maximum size of a response in bytes, and the maximum number of certificates in it. A response
    /// without certificates takes a few hundred bytes, and a response with a delegate's certificate about
    /// 2,000.
    private static let (byteLimit, certificateLimit) = (16 * 1024, 4)

    /// Also returns `nil` for a response that contains only an error status, and for a response that is
    /// too expensive to process.
    private static func decode(_ bytes: UnsafeBufferPointer<UInt8>) -> OpaquePointer? {
        guard bytes.count <= byteLimit, !CertificateMessage.describesCurve(in: UnsafeRawBufferPointer(bytes)),
            let basic = decodeAll(bytes)
        else { return nil }
        let certificates = OCSP_resp_get0_certs(basic)
        let count = COpenSSL_sk_X509_num(certificates)
        let isCheap = (0..<count).allSatisfy {
            COpenSSL_sk_X509_value(certificates, $0).map { PeerKeyBounds.complaint(about: $0) == nil } ?? true
        }
        if isCheap, count <= certificateLimit { return basic }
        OCSP_BASICRESP_free(basic)
        return nil
    }

    private static func decodeAll(_ bytes: UnsafeBufferPointer<UInt8>) -> OpaquePointer? {
        OpenSSLCall.attempt { () -> OpaquePointer? in
            var cursor = bytes.baseAddress
            guard let response = d2i_OCSP_RESPONSE(nil, &cursor, bytes.count) else { return nil }
            defer { OCSP_RESPONSE_free(response) }
            guard OCSP_response_status(response) == OCSP_RESPONSE_STATUS_SUCCESSFUL else { return nil }
            return OCSP_response_get1_basic(response)
        }.value
    }

    /// The issuer is the only trust anchor. It need not be a root, because it has already been verified.
    private func isSigned(_ basic: OpaquePointer, by issuer: TLSCertificate) -> Bool {
        OpenSSLCall.attempt { () -> Bool? in
            let certificates = COpenSSL_sk_X509_new()
            defer { COpenSSL_sk_X509_free(certificates) }
            guard let store = X509_STORE_new() else { return nil }
            defer { X509_STORE_free(store) }
            X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
            X509_VERIFY_PARAM_set_time(X509_STORE_get0_param(store), time)
            let x509 = issuer.handle.x509
            guard X509_STORE_add_cert(store, x509) == 1, X509_up_ref(x509) == 1 else { return nil }
            guard COpenSSL_sk_X509_push(certificates, x509) > 0 else {
                X509_free(x509)
                return nil
            }
            return OCSP_basic_verify(basic, certificates, store, 0) == 1 ? true : nil
        }.value == true
    }

    private func answer(in basic: OpaquePointer, from issuer: TLSCertificate) -> OpaquePointer? {
        OpenSSLCall.attempt { () -> OpaquePointer? in
            for index in 0..<max(0, OCSP_resp_count(basic)) {
                guard let answer = OCSP_resp_get0(basic, index), let subject = OCSP_SINGLERESP_get0_id(answer) else { continue }
                // The responder chooses the digest algorithm for the issuer's name and key.
                var digest: OpaquePointer?
                OCSP_id_get0_info(nil, &digest, nil, nil, subject)
                guard let method = EVP_get_digestbyname(OBJ_nid2sn(OBJ_obj2nid(digest))),
                    let own = OCSP_cert_to_id(method, leaf.handle.x509, issuer.handle.x509)
                else { continue }
                defer { OCSP_CERTID_free(own) }
                if OCSP_id_cmp(own, subject) == 0 { return answer }
            }
            return nil
        }.value
    }

    /// Whether the TLS feature extension contains status_request (5).
    private static func mustStaple(_ certificate: TLSCertificate) -> Bool {
        let index = X509_get_ext_by_NID(certificate.handle.x509, NID_tlsfeature, -1)
        guard index >= 0, let data = X509_EXTENSION_get_data(X509_get_ext(certificate.handle.x509, index)) else { return false }
        let bytes = UnsafeBufferPointer(start: ASN1_STRING_get0_data(data), count: Int(max(0, ASN1_STRING_length(data))))
        // A SEQUENCE of INTEGERs, each consisting of a type, a length and a number.
        var rest = bytes.dropFirst(2)
        while rest.count >= 3, let length = rest.dropFirst().first {
            if rest.prefix(3).elementsEqual([0x02, 0x01, 0x05]) { return true }
            rest = rest.dropFirst(2 + Int(length))
        }
        return false
    }
}

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

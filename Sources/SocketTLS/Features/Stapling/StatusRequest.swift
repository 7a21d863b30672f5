internal import COpenSSL

extension StapledStatus {
    /// Makes clients request and check an OCSP response. OpenSSL calls this callback after the callback for
    /// the certificate, because in TLS 1.2 the response arrives later. If the callback rejects the response,
    /// OpenSSL sends the alert bad_certificate_status_response.
    static func request(on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_status_type") { COpenSSL_CTX_requestStatus(context) }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_status_cb") {
            COpenSSL_CTX_setStatusCallback(context) { ssl, _ in
                guard let ssl, let judge = EngineCallbacks.facts(of: ssl)?.judge else { return 0 }
                var start: UnsafePointer<UInt8>?
                let count = COpenSSL_statusResponse(ssl, &start)
                return judge.judgeStatus(count > 0 ? UnsafeBufferPointer(start: start, count: count) : nil) ? 1 : 0
            }
        }
    }
}

extension Judge {
    func expectStatus(of chain: VerifiedChain) {
        stapledStatus = StapledStatus(chain, isRequired: stapling == .required, at: rules.verificationTime)
    }

    /// Returns the OCSP response that a server sent to this client, if any.
    func ocspResponse(on ssl: OpaquePointer) -> [UInt8]? {
        var start: UnsafePointer<UInt8>?
        guard !isServer else { return nil }
        let count = COpenSSL_statusResponse(ssl, &start)
        guard count > 0, let start else { return nil }
        return Array(UnsafeBufferPointer(start: start, count: count))
    }

    /// Checks the stapled OCSP response, or its absence (`nil`). Returns false to reject the server.
    func judgeStatus(_ response: UnsafeBufferPointer<UInt8>?) -> Bool {
        guard let status = stapledStatus else { return true }
        stapledStatus = nil
        guard let fault = status.fault(in: response) else {
            if let response { evidenceEnds(status.end(of: Array(response))) }
            return true
        }
        gate.overrule(trust([status.leaf], fault))
        return false
    }
}

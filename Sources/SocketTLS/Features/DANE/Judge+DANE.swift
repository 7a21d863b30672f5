internal import COpenSSL

extension Judge {
    /// Passes the records of a connection to OpenSSL.
    func expect(_ dane: TLSDANE, on ssl: OpaquePointer, serverName: String) throws(TLSError) {
        let verification = try DANEVerification(dane, on: ssl, serverName: serverName)
        self.dane = verification
        if verification.acceptsAnyone { gate.acceptsUntrusted = true }
    }

    /// Returns the fault of a chain that OpenSSL has accepted, and that matched `record`. OpenSSL accepts no
    /// chain without a match if a record is usable. A `daneEE` record authenticates a certificate without its
    /// issuer, so that a required proof of the issuer cannot be checked.
    func faultOfMatch(_ record: TLSARecord?, _ chain: [TLSCertificate]) -> PeerTrust.Verdict? {
        guard let dane, !dane.usable.isEmpty else { return nil }
        guard let record else { return dane.mismatch(chain) }
        guard record.usage == .daneEE, requiresStatus else { return nil }
        return .untrusted(
            reason:
                "the TLSA record \(record.shortText) matches, but its usage has no issuer, and the settings require a proof that the certificate is not revoked",
            code: X509_V_ERR_UNABLE_TO_GET_CRL, depth: 0)
    }

    /// Returns the fault of the raw public key that OpenSSL is verifying; `nil` if it matches a record.
    func faultOfKey(in store: OpaquePointer) -> ProofFault? {
        guard X509_verify_cert(store) != 1 else { return nil }
        var message = "no TLSA record matches the server's raw public key"
        if case .untrusted(let reason, _, _) = dane?.mismatch([]) { message = reason }
        let error = TLSError(.tlsaMismatch, message, verifyCode: X509_V_ERR_DANE_NO_MATCH)
        return ProofFault(error: error, verifyCode: X509_V_ERR_DANE_NO_MATCH)
    }
}

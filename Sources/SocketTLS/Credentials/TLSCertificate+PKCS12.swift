internal import COpenSSL

extension TLSCertificate {
    /// Returns every certificate in the bytes of a PKCS#12 file (RFC 7292), in the order of the file, whether
    /// or not it belongs to a private key. The private keys are not decrypted.
    ///
    /// For `passphrase` and `allowsLegacyAlgorithms`, see
    /// `TLSIdentity.init(pkcs12:allowsLegacyAlgorithms:passphrase:)`.
    ///
    /// Throws `invalidCertificate` if the bytes are not PKCS#12 or contain no certificate;
    /// `invalidPrivateKey` if the passphrase is missing or wrong, or if the algorithm is too old; and
    /// `internalError` if the legacy provider is not installed.
    public static func certificates(
        pkcs12: [UInt8], allowsLegacyAlgorithms: Bool = false, passphrase: () throws -> String
    ) throws(TLSError) -> [TLSCertificate] {
        let archive = try PKCS12Archive(
            SecretBytes(copying: pkcs12), source: "the PKCS#12 file", allowsLegacyAlgorithms: allowsLegacyAlgorithms)
        return try PassphraseSource.asking(passphrase) { source throws(TLSError) in try archive.certificates(source) }
    }
}

extension PKCS12Archive {
    fileprivate func certificates(_ passphrase: PassphraseSource) throws(TLSError) -> [TLSCertificate] {
        let secret = try opening(passphrase)
        defer { withExtendedLifetime(secret) {} }
        let safes = try OpenSSLCall.require(
            "PKCS12_unpack_authsafes", or: .invalidCertificate, "\(source) cannot be decoded"
        ) { PKCS12_unpack_authsafes(archive) }
        defer { COpenSSL_sk_PKCS7_free(safes) }
        var certificates: [TLSCertificate] = []
        for index in 0..<COpenSSL_sk_PKCS7_num(safes) {
            certificates += try self.certificates(in: COpenSSL_sk_PKCS7_value(safes, index), secret, passphrase)
        }
        if !certificates.isEmpty { return certificates }
        throw TLSError(.invalidCertificate, "\(source) contains no certificates", operation: "PKCS12_SAFEBAG_get1_cert")
    }

    private func certificates(
        in safe: UnsafeMutablePointer<PKCS7>?, _ secret: SecretBytes?, _ passphrase: PassphraseSource
    ) throws(TLSError) -> [TLSCertificate] {
        guard let safe else { return [] }
        let kind = OBJ_obj2nid(safe.pointee.type)
        guard kind == NID_pkcs7_data || kind == NID_pkcs7_encrypted else { return [] }
        let (bags, entries) = withAlgorithms {
            kind == NID_pkcs7_data ? PKCS12_unpack_p7data(safe) : PKCS12_unpack_p7encdata(safe, secret?.text, -1)
        }
        guard let bags else {
            throw passphrase.failure(
                encrypted: "\(source) is encrypted", otherwise: "\(source) cannot be decoded",
                operation: "PKCS12_unpack_p7encdata", entries)
        }
        defer { COpenSSL_sk_PKCS12_SAFEBAG_free(bags) }
        return try certificates(in: bags)
    }

    /// Includes certificates in nested bags. OpenSSL limits the depth when it decodes them.
    private func certificates(in bags: OpaquePointer?) throws(TLSError) -> [TLSCertificate] {
        guard let bags else { return [] }
        var certificates: [TLSCertificate] = []
        for index in 0..<COpenSSL_sk_PKCS12_SAFEBAG_num(bags) {
            let bag = COpenSSL_sk_PKCS12_SAFEBAG_value(bags, index)
            switch PKCS12_SAFEBAG_get_nid(bag) {
            case NID_certBag where PKCS12_SAFEBAG_get_bag_nid(bag) == NID_x509Certificate:
                certificates.append(try certificate(in: bag))
            case NID_safeContentsBag: certificates += try self.certificates(in: PKCS12_SAFEBAG_get0_safes(bag))
            default: break
            }
        }
        return certificates
    }

    private func certificate(in bag: OpaquePointer?) throws(TLSError) -> TLSCertificate {
        let (x509, entries) = withAlgorithms { PKCS12_SAFEBAG_get1_cert(bag) }
        guard let x509 else {
            throw TLSError(
                .invalidCertificate, "\(source) contains a certificate that cannot be decoded",
                operation: "PKCS12_SAFEBAG_get1_cert", openSSLStack: entries.map(\.text))
        }
        // Rule 3 in `PKCS12Archive.swift`.
        return try TLSCertificate(der: TLSCertificate(owning: x509).derBytes)
    }
}

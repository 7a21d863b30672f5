import COpenSSL
import Glibc
import SocketTLS

extension RawPeer {
    func offer(groups: String) throws {
        try require(groups.withCString { SSL_ctrl(ssl, SSL_CTRL_SET_GROUPS_LIST, 0, UnsafeMutableRawPointer(mutating: $0)) } == 1)
    }

    /// Sets the signature algorithms that this side verifies, as in SSL_CTX_set1_sigalgs_list(3).
    func offer(signatures: String) throws {
        try require(
            signatures.withCString { SSL_ctrl(ssl, SSL_CTRL_SET_SIGALGS_LIST, 0, UnsafeMutableRawPointer(mutating: $0)) } == 1)
    }

    /// The certificates that the other side has sent, with its own first.
    var peerCertificates: [TLSCertificate] {
        let chain = SSL_get_peer_cert_chain(ssl)
        return (0..<COpenSSL_sk_X509_num(chain)).compactMap { index in
            try? TLSCertificate(der: MemoryBytes.written { i2d_X509_bio($0, COpenSSL_sk_X509_value(chain, index)) })
        }
    }

    /// Sets the TLS 1.2 cipher suites.
    func offer(ciphers: String) throws {
        SSL_set_security_level(ssl, 0)
        try require(SSL_set_cipher_list(ssl, ciphers) == 1)
    }

    /// Sets the TLS 1.3 cipher suites.
    func offer(ciphersuites: String) throws {
        try require(SSL_set_ciphersuites(ssl, ciphersuites) == 1)
    }

    func show(_ certificate: ForgedCertificate, chain: [ForgedCertificate] = []) throws {
        SSL_certs_clear(ssl)
        SSL_set_security_level(ssl, 0)
        try require(SSL_use_certificate(ssl, certificate.x509) == 1 && SSL_use_PrivateKey(ssl, certificate.key.pointer) == 1)
        for other in chain {
            try require(SSL_ctrl(ssl, SSL_CTRL_CHAIN_CERT, 1, UnsafeMutableRawPointer(other.x509)) == 1)
        }
    }

    var cipher: String {
        SSL_get_current_cipher(ssl).flatMap { SSL_CIPHER_get_name($0) }.map { String(cString: $0) } ?? ""
    }

    private func require(_ isDone: Bool) throws {
        if !isDone { throw TestFailure(what: "raw peer") }
    }
}

/// A key that cannot sign, or that is expensive to verify with.
final class ForgedKey {
    let pointer: OpaquePointer

    /// Uses a random modulus and an exponent of this size, so its signatures are invalid.
    init(rsaBits: Int32, exponentBits: Int32 = 17, kind: String = "RSA") throws {
        let (modulus, exponent, secret) = (BN_new(), BN_new(), BN_new())
        let builder = OSSL_PARAM_BLD_new()
        let context = EVP_PKEY_CTX_new_from_name(nil, kind, nil)
        defer {
            for number in [modulus, exponent, secret] { BN_free(number) }
            OSSL_PARAM_BLD_free(builder)
            EVP_PKEY_CTX_free(context)
        }
        guard BN_rand(modulus, rsaBits, 0, 1) == 1, BN_rand(exponent, exponentBits, 0, 1) == 1, BN_set_word(secret, 65537) == 1,
            COpenSSL_pushRSANumbers(builder, modulus, exponent, secret) == 1,
            let parameters = OSSL_PARAM_BLD_to_param(builder)
        else { throw TestFailure(what: "RSA numbers") }
        defer { OSSL_PARAM_free(parameters) }
        var key: OpaquePointer?
        guard EVP_PKEY_fromdata_init(context) == 1,
            EVP_PKEY_fromdata(context, &key, COpenSSL_keyPairSelection(), parameters) == 1, let key
        else { throw TestFailure(what: "RSA key") }
        pointer = key
    }

    /// Uses random numbers as a key of the kind "DSA", "DH" or "DHX".
    init(oldKind kind: String) throws {
        let builder = OSSL_PARAM_BLD_new()
        let context = EVP_PKEY_CTX_new_from_name(nil, kind, nil)
        // OpenSSL refers to both until it has built the parameters.
        var (numbers, names): ([OpaquePointer?], [UnsafeMutablePointer<CChar>?]) = ([], [])
        defer {
            for number in numbers { BN_free(number) }
            for name in names { free(name) }
            OSSL_PARAM_BLD_free(builder)
            EVP_PKEY_CTX_free(context)
        }
        let sizes: [(String, Int32)] = [
            (OSSL_PKEY_PARAM_FFC_P, 2048), (OSSL_PKEY_PARAM_FFC_Q, 256), (OSSL_PKEY_PARAM_FFC_G, 16),
            (OSSL_PKEY_PARAM_PUB_KEY, 2000), (OSSL_PKEY_PARAM_PRIV_KEY, 200),
        ]
        for (name, bits) in sizes {
            let number = BN_new()
            let name = strdup(name)
            numbers.append(number)
            names.append(name)
            guard BN_rand(number, bits, 0, 1) == 1, OSSL_PARAM_BLD_push_BN(builder, name, number) == 1 else {
                throw TestFailure(what: kind)
            }
        }
        let parameters = OSSL_PARAM_BLD_to_param(builder)
        defer { OSSL_PARAM_free(parameters) }
        var key: OpaquePointer?
        guard EVP_PKEY_fromdata_init(context) == 1,
            EVP_PKEY_fromdata(context, &key, COpenSSL_keyPairSelection(), parameters) == 1, let key
        else { throw TestFailure(what: kind) }
        pointer = key
    }

    /// Creates a valid key on a curve. With `describesItsCurve`, the certificate contains explicit curve
    /// parameters instead of the curve's name.
    init(curve: String, describesItsCurve: Bool = false) throws {
        guard let key = COpenSSL_EVP_EC_generate(curve) else { throw TestFailure(what: curve) }
        pointer = key
        if describesItsCurve {
            guard EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING, OSSL_PKEY_EC_ENCODING_EXPLICIT) == 1 else {
                throw TestFailure(what: "explicit parameters")
            }
        }
    }

    deinit { EVP_PKEY_free(pointer) }
}

/// A certificate for `name` that is not issued by any CA.
final class ForgedCertificate {
    let x509: OpaquePointer
    let key: ForgedKey

    /// - Parameter signer: The signing key, if the certificate's own key cannot or should not sign.
    init(_ key: ForgedKey, name: String = "x", signer: ForgedKey? = nil) throws {
        guard let certificate = X509_new() else { throw TestFailure(what: "X509_new") }
        (x509, self.key) = (certificate, key)
        X509_set_version(certificate, Int(X509_VERSION_3))
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), .random(in: 1...(.max)))
        X509_gmtime_adj(X509_getm_notBefore(certificate), -60)
        X509_gmtime_adj(X509_getm_notAfter(certificate), 3600)
        X509_NAME_add_entry_by_NID(
            X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8, Array(name.utf8), Int32(name.utf8.count), -1, 0)
        X509_set_issuer_name(certificate, X509_get_subject_name(certificate))
        X509_set_pubkey(certificate, key.pointer)
        guard X509_sign(certificate, (signer ?? key).pointer, EVP_sha256()) > 0 else {
            throw TestFailure(what: "X509_sign: \(OpenSSLCallQueue.texts)")
        }
    }

    deinit { X509_free(x509) }
}

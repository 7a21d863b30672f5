internal import COpenSSL
internal import SocketTLS

/// Creates and owns a signed `X509`.
final class X509Certificate: @unchecked Sendable {
    // Unchecked: the certificate does not change after `init`.
    let pointer: OpaquePointer
    /// Upper-case hexadecimal with two digits per octet.
    let serialNumber: String

    /// Creates a signed certificate for `key`. Without a signer, the certificate is self-signed.
    init(_ template: CertificateTemplate, key: SigningKey, signedBy signer: Signer?) throws(CertificateAuthorityError) {
        let certificate = try CertificateCall.require("X509_new") { X509_new() }
        pointer = certificate
        // Positive (RFC 5280, section 4.1.2.2), and random so that no two certificates of an authority have
        // the same serial number.
        let serial = UInt64.random(in: 1...UInt64.max)
        let digits = String(serial, radix: 16, uppercase: true)
        serialNumber = digits.count.isMultiple(of: 2) ? digits : "0" + digits

        try CertificateCall.requireSuccess("X509_set_version") { X509_set_version(certificate, Int(X509_VERSION_3)) }
        try CertificateCall.requireSuccess("ASN1_INTEGER_set_uint64") {
            ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial)
        }
        try CertificateCall.requireSuccess("X509_set_pubkey") { X509_set_pubkey(certificate, key.pointer) }
        try setValidity(from: template.notBefore, to: template.notAfter)
        try Self.setCommonName(template.commonName, of: X509_get_subject_name(certificate))
        let issuer = signer?.certificate.pointer ?? certificate
        try CertificateCall.requireSuccess("X509_set_issuer_name") {
            X509_set_issuer_name(certificate, X509_get_subject_name(issuer))
        }
        try addExtensions(of: template, issuer: issuer)
        try CertificateCall.requireSuccess("X509_sign") {
            X509_sign(certificate, signer?.key.pointer ?? key.pointer, EVP_sha256())
        }
    }

    init(pem: String) throws(CertificateAuthorityError) {
        let certificate = try CertificateCall.require(
            "PEM_read_bio_X509", or: .unreadable, "the text is not a certificate in PEM form"
        ) { MemoryBIO.reading(pem) { PEM_read_bio_X509($0, nil, nil, nil) } }
        pointer = certificate
        let number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nil)
        defer { BN_free(number) }
        let digits = BN_bn2hex(number)
        defer { COpenSSL_free(digits) }
        serialNumber = digits.map { String(cString: $0) } ?? ""
    }

    deinit { X509_free(pointer) }

    var pem: String {
        get throws(CertificateAuthorityError) {
            try CertificateCall.require("PEM_write_bio_X509") { MemoryBIO.text { PEM_write_bio_X509($0, pointer) } }
        }
    }

    private func setValidity(from notBefore: Int, to notAfter: Int) throws(CertificateAuthorityError) {
        _ = try CertificateCall.require("X509_gmtime_adj") { X509_gmtime_adj(X509_getm_notBefore(pointer), notBefore) }
        _ = try CertificateCall.require("X509_gmtime_adj") { X509_gmtime_adj(X509_getm_notAfter(pointer), notAfter) }
    }

    /// Adds a common name to an empty `X509_NAME`.
    static func setCommonName(_ commonName: String, of subject: OpaquePointer?) throws(CertificateAuthorityError) {
        let bytes = Array(commonName.utf8)
        try CertificateCall.requireSuccess(
            "X509_NAME_add_entry_by_NID", or: .invalidName,
            "the common name \"\(commonName)\" must have 1 to 64 characters"
        ) {
            bytes.isEmpty
                ? 0
                : X509_NAME_add_entry_by_NID(
                    subject, NID_commonName, MBSTRING_UTF8, bytes, Int32(bytes.count), -1, 0)
        }
    }

    private func addExtensions(of template: CertificateTemplate, issuer: OpaquePointer) throws(CertificateAuthorityError) {
        try addExtension(NID_basic_constraints, template.basicConstraints, issuer: issuer)
        try addExtension(NID_key_usage, template.keyUsage, issuer: issuer)
        if let usage = template.extendedKeyUsage { try addExtension(NID_ext_key_usage, usage, issuer: issuer) }
        // The subject key identifier must be added before the authority key identifier, which in a
        // self-signed certificate is copied from it.
        try addExtension(NID_subject_key_identifier, "hash", issuer: issuer)
        try addExtension(NID_authority_key_identifier, "keyid:always", issuer: issuer)
        if !template.alternativeNames.isEmpty { try AlternativeName.add(template.alternativeNames, to: pointer) }
    }

    private func addExtension(_ nid: Int32, _ value: String, issuer: OpaquePointer) throws(CertificateAuthorityError) {
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer, pointer, nil, nil, 0)
        let part = try CertificateCall.require("X509V3_EXT_conf_nid") { X509V3_EXT_conf_nid(nil, &context, nid, value) }
        defer { X509_EXTENSION_free(part) }
        try CertificateCall.requireSuccess("X509_add_ext") { X509_add_ext(pointer, part, -1) }
    }
}

/// A certificate and its key. The signer of an authority can sign other certificates.
struct Signer: Sendable {
    let certificate: X509Certificate
    let key: SigningKey

    /// Creates a new key and a certificate for it. Without a signer, the certificate is self-signed.
    init(
        _ template: CertificateTemplate,
        keyType: CertificateAuthority.KeyType,
        signedBy signer: Signer?
    ) throws(CertificateAuthorityError) {
        key = try SigningKey(keyType)
        certificate = try X509Certificate(template, key: key, signedBy: signer)
    }

    init(certificate: X509Certificate, key: SigningKey) {
        self.certificate = certificate
        self.key = key
    }
}

final class SigningKey: @unchecked Sendable {
    // Unchecked: the key does not change after `init`, and OpenSSL allows any number of threads to sign
    // with the same key.
    let pointer: OpaquePointer

    init(_ type: CertificateAuthority.KeyType) throws(CertificateAuthorityError) {
        switch type {
        case .p256: pointer = try CertificateCall.require("EVP_EC_gen") { COpenSSL_EVP_EC_generate("P-256") }
        case .rsa2048: pointer = try CertificateCall.require("EVP_RSA_gen") { COpenSSL_EVP_RSA_generate(2048) }
        case .rsa3072: pointer = try CertificateCall.require("EVP_RSA_gen") { COpenSSL_EVP_RSA_generate(3072) }
        }
    }

    /// Reads an unencrypted private key.
    init(pem: String) throws(CertificateAuthorityError) {
        pointer = try CertificateCall.require(
            "PEM_read_bio_PrivateKey", or: .unreadable, "the text is not an unencrypted private key in PEM form"
        ) {
            // Without a callback, OpenSSL would prompt on the terminal for the passphrase.
            MemoryBIO.reading(pem) { PEM_read_bio_PrivateKey($0, nil, { _, _, _, _ in -1 }, nil) }
        }
    }

    /// Takes ownership of a key, which may have only a public half if it does not sign.
    init(owning key: OpaquePointer) { pointer = key }

    deinit { EVP_PKEY_free(pointer) }

    var isRSA: Bool { EVP_PKEY_is_a(pointer, "RSA") == 1 }

    /// PKCS #8, unencrypted.
    var pem: String {
        get throws(CertificateAuthorityError) {
            try CertificateCall.require("PEM_write_bio_PKCS8PrivateKey") {
                MemoryBIO.text { PEM_write_bio_PKCS8PrivateKey($0, pointer, nil, nil, 0, nil, nil) }
            }
        }
    }
}

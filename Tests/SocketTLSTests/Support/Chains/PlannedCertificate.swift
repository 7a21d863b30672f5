import AsyncSocketsTesting
import COpenSSL
import SocketTLS

/// A key from the tests' pool, because generating keys would take most of the time.
final class PooledKey: Sendable {
    // OpenSSL's reference counts are atomic, and keys are not modified.
    nonisolated(unsafe) let pointer: OpaquePointer
    /// Nil if the key determines the digest.
    nonisolated(unsafe) let digest: OpaquePointer?
    let isWeak: Bool

    private init(_ pointer: OpaquePointer?, digest: OpaquePointer? = EVP_sha256(), isWeak: Bool = false) {
        guard let pointer else { preconditionFailure("OpenSSL makes no key.") }
        (self.pointer, self.digest, self.isWeak) = (pointer, digest, isWeak)
    }

    static let curves256 = (0..<8).map { _ in PooledKey(COpenSSL_EVP_EC_generate("P-256")) }
    static let others = [
        PooledKey(COpenSSL_EVP_EC_generate("P-384")), PooledKey(COpenSSL_EVP_RSA_generate(2048)),
        PooledKey(COpenSSL_EVP_RSA_generate(3072)),
    ]
    /// Used only by CAs here.
    static let ofAuthorities = [
        PooledKey(COpenSSL_EVP_EC_generate("P-521")), PooledKey(edwards(), digest: nil),
        PooledKey(COpenSSL_EVP_EC_generate("P-384"), digest: EVP_sha384()),
    ]
    /// Too weak for security level 2.
    static let weak = [PooledKey(COpenSSL_EVP_RSA_generate(1024), isWeak: true)]

    private static func edwards() -> OpaquePointer? {
        let context = EVP_PKEY_CTX_new_from_name(nil, "ED25519", nil)
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1, EVP_PKEY_generate(context, &key) == 1 else { return nil }
        return key
    }
}

/// The contents of a certificate, valid or not.
struct CertificatePlan {
    /// Nil for an empty name.
    var subject: String?
    var key: PooledKey
    /// An issuer name that differs from the actual issuer's.
    var issuerName: String?
    /// A signing key that differs from the actual issuer's.
    var signingKey: PooledKey?
    var digest: Digest?
    /// The text of each extension in the syntax of x509v3_config(5), or nil for none.
    var basicConstraints: String?
    var keyUsage: String?
    var extendedKeyUsage: String?
    var subjectKeyIdentifier: String? = "hash"
    var authorityKeyIdentifier: String? = "keyid"
    var alternativeNames: [String] = []
    var isAlternativeNameCritical = false
    var constraints: ConstraintSample?
    var further: HandmadeCertificate.Extensions = []
    var raw: [(identifier: String, value: [UInt8], isCritical: Bool)] = []
    var days: Range<Int> = -30..<30
    var version = X509_VERSION_3
    var damage: Damage?

    enum Digest {
        case sha1, sha384
    }

    /// A modification of a certificate after it was signed.
    enum Damage: CaseIterable {
        case signature, contents, algorithm
    }

    static func authority(_ name: String, _ key: PooledKey) -> CertificatePlan {
        CertificatePlan(
            subject: name, key: key, basicConstraints: "critical,CA:TRUE", keyUsage: "critical,keyCertSign,cRLSign")
    }

    static func server(_ names: [String], _ key: PooledKey) -> CertificatePlan {
        CertificatePlan(
            subject: "Server", key: key, basicConstraints: "critical,CA:FALSE", keyUsage: "critical,digitalSignature",
            extendedKeyUsage: "serverAuth", alternativeNames: names)
    }

    var isAuthority: Bool {
        extensions.contains { identifier, text in identifier == NID_basic_constraints && text.contains("CA:TRUE") }
    }

    var cannotSign: Bool { keyUsage.map { !$0.contains("digitalSignature") } ?? false }

    /// Whether it cannot be used in TLS 1.2 handshakes, or in any handshake, whatever the verdict on its
    /// chain.
    var isNotForHandshakes: Bool {
        cannotSign || key.isWeak || !further.isEmpty || !raw.isEmpty || constraints?.bytes != nil
    }

    private var extensions: HandmadeCertificate.Extensions {
        let names = alternativeNames.isEmpty ? nil : alternativeNames.joined(separator: ",")
        let all: [(Int32, String?)] = [
            (NID_basic_constraints, basicConstraints), (NID_key_usage, keyUsage), (NID_ext_key_usage, extendedKeyUsage),
            (NID_subject_key_identifier, subjectKeyIdentifier), (NID_authority_key_identifier, authorityKeyIdentifier),
            (NID_subject_alt_name, names.map { (isAlternativeNameCritical ? "critical," : "") + $0 }),
            (NID_name_constraints, constraints?.text),
        ]
        return all.compactMap { identifier, text in text.map { (identifier, $0) } } + further
    }

    /// - Parameter issuer: Nil for a self-signed certificate.
    func make(signedBy issuer: PlannedCertificate? = nil) throws -> PlannedCertificate {
        guard let certificate = X509_new() else { throw TestFailure(what: "X509_new") }
        defer { X509_free(certificate) }
        X509_set_version(certificate, Int(version))
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), .random(in: 1...(.max)))
        X509_gmtime_adj(X509_getm_notBefore(certificate), days.lowerBound * 86_400)
        X509_gmtime_adj(X509_getm_notAfter(certificate), days.upperBound * 86_400)
        Self.add(subject, to: X509_get_subject_name(certificate))
        Self.add(issuerName ?? (issuer.map { $0.plan.subject } ?? subject), to: X509_get_issuer_name(certificate))
        X509_set_pubkey(certificate, key.pointer)
        try addExtensions(to: certificate, issuer)
        let signer = signingKey ?? issuer?.plan.key ?? key
        let chosen = digest.map { $0 == .sha1 ? EVP_sha1() : EVP_sha384() }
        guard X509_sign(certificate, signer.pointer, signer.digest == nil ? nil : chosen ?? signer.digest) > 0 else {
            throw TestFailure(what: "X509_sign")
        }
        return try PlannedCertificate(plan: self, bytes: damaged(certificate))
    }

    private func damaged(_ certificate: OpaquePointer) throws -> [UInt8] {
        switch damage {
        case .contents: ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), 1)
        case .algorithm:
            let algorithm = UnsafeMutablePointer(mutating: X509_get0_tbs_sigalg(certificate))
            X509_ALGOR_set0(algorithm, OBJ_nid2obj(NID_ecdsa_with_SHA512), V_ASN1_UNDEF, nil)
        case .signature, nil: break
        }
        // OpenSSL then encodes the signed part again, and keeps the signature.
        if damage != nil { i2d_re_X509_tbs(certificate, nil) }
        var bytes = try MemoryBytes.written { i2d_X509_bio($0, certificate) }
        if damage == .signature { bytes[bytes.count - 1] ^= 1 }
        return bytes
    }

    private func addExtensions(to certificate: OpaquePointer, _ issuer: PlannedCertificate?) throws {
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer?.x509 ?? certificate, certificate, nil, nil, 0)
        // OpenSSL cannot refer to a key without an identifier.
        let isNameless = (issuer?.plan ?? self).subjectKeyIdentifier == nil
        for (identifier, text) in extensions where !(isNameless && identifier == NID_authority_key_identifier) {
            let part = X509V3_EXT_conf_nid(nil, &context, identifier, text)
            defer { X509_EXTENSION_free(part) }
            guard X509_add_ext(certificate, part, -1) == 1 else { throw TestFailure(what: "\(text): \(OpenSSLCallQueue.texts)") }
        }
        let constraint = constraints?.bytes.map { [(identifier: "2.5.29.30", value: $0, isCritical: true)] } ?? []
        for (identifier, value, isCritical) in constraint + raw {
            try HandmadeCertificate.add(identifier, value, isCritical: isCritical, to: certificate)
        }
    }

    private static func add(_ text: String?, to name: OpaquePointer?) {
        guard let text else { return }
        X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, Array(text.utf8), Int32(text.utf8.count), -1, 0)
    }
}

/// A generated certificate and its plan.
final class PlannedCertificate {
    let plan: CertificatePlan
    let bytes: [UInt8]
    /// Decoded from the bytes, as by a peer.
    let x509: OpaquePointer

    fileprivate init(plan: CertificatePlan, bytes: [UInt8]) throws {
        let x509 = bytes.withUnsafeBufferPointer { buffer in
            var cursor = buffer.baseAddress
            return d2i_X509(nil, &cursor, buffer.count)
        }
        guard let x509 else { throw TestFailure(what: "d2i_X509: \(OpenSSLCallQueue.texts)") }
        (self.plan, self.bytes, self.x509) = (plan, bytes, x509)
    }

    /// OpenSSL still trusts such a certificate if it is a root.
    var hasUnreadableExtensions: Bool { X509_get_extension_flags(x509) & UInt32(EXFLAG_INVALID) != 0 }

    deinit { X509_free(x509) }

    /// Returns a new object with the same bytes, because OpenSSL caches results in the object.
    func copy() throws -> PlannedCertificate { try PlannedCertificate(plan: plan, bytes: bytes) }
}

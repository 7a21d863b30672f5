internal import COpenSSL
internal import FoundationEssentials

/// A fault that OpenSSL found in a chain, and the affected certificate.
struct CertificateFault {
    private let code: Int32
    private let depth: Int
    private let certificate: TLSCertificate?
    private let leaf: TLSCertificate?
    private let expectedName: String?
    /// Why the roots are missing, if the environment or the system is the cause.
    private let missingRoots: String?

    init(in store: OpaquePointer, leaf: TLSCertificate?, _ expectedName: String?) {
        let code = X509_STORE_CTX_get_error(store)
        self.code = code == X509_V_OK ? X509_V_ERR_UNSPECIFIED : code
        depth = Int(X509_STORE_CTX_get_error_depth(store))
        certificate = X509_STORE_CTX_get_current_cert(store).map { TLSCertificate(sharing: $0) }
        self.leaf = leaf
        self.expectedName = expectedName
        missingRoots = X509_STORE_CTX_get0_store(store).flatMap { SystemTrustStore.reasonForNoRoots(in: $0) }
    }

    var verdict: PeerTrust.Verdict {
        .untrusted(reason: sentence, code: code, depth: depth)
    }

    private var sentence: String {
        switch TLSError.Code(verifyCode: code) {
        case .certificateExpired: "\(owner) expired on \(day(certificate?.notAfter))"
        case .certificateNotYetValid: "\(owner) is not valid before \(day(certificate?.notBefore))"
        case .hostNameMismatch: "\(owner) is for \(leafNames), not for \"\(expectedName ?? "")\""
        case .unknownIssuer: issuerSentence
        default: "\(owner) was rejected: \(detail)"
        }
    }

    private var issuerSentence: String {
        guard let certificate, certificate.subject != certificate.issuer else {
            return "\(owner) is self-signed and not a trusted root (\(detail))"
        }
        return
            "\(owner) was issued by \"\(certificate.issuer.printable)\", which is not trusted (\(detail))\(missingRoots ?? "")"
    }

    private var owner: String {
        guard let certificate else { return "the peer's certificate" }
        let subject = "the certificate of \"\(certificate.displayName)\""
        return depth > 0 ? "\(subject) (depth \(depth) in the chain of \"\(leaf?.displayName ?? "the peer")\")" : subject
    }

    private var leafNames: String {
        let names = (leaf?.dnsNames ?? []) + (leaf?.ipAddresses ?? [])
        guard !names.isEmpty else { return "no host name" }
        let shown = names.prefix(4).map { "\"\($0.printable)\"" }.joined(separator: ", ")
        return names.count > 4 ? "\(shown) and \(names.count - 4) more" : shown
    }

    private var detail: String {
        X509_verify_cert_error_string(Int(code)).map { String(cString: $0) } ?? "error \(code)"
    }

    private func day(_ date: Date?) -> String {
        date?.gregorianText ?? "a date that cannot be read"
    }
}

extension CertificateFault {
    /// Returns a verdict if the chain is too expensive to verify, otherwise `nil`.
    static func excess(in chain: [TLSCertificate]) -> PeerTrust.Verdict? {
        for (depth, certificate) in chain.enumerated() {
            guard let complaint = PeerKeyBounds.complaint(about: certificate.handle.x509) else { continue }
            return .untrusted(
                reason: "the certificate of \"\(certificate.displayName)\" \(complaint)", code: X509_V_ERR_CERT_REJECTED,
                depth: depth)
        }
        return nil
    }
}

extension TLSError.Code {
    init(verifyCode: Int32) {
        switch verifyCode {
        case X509_V_ERR_CERT_HAS_EXPIRED: self = .certificateExpired
        case X509_V_ERR_CERT_NOT_YET_VALID: self = .certificateNotYetValid
        case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH: self = .hostNameMismatch
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
            X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_UNTRUSTED:
            self = .unknownIssuer
        case X509_V_ERR_CERT_REVOKED: self = .certificateRevoked
        case PinnedKeys.mismatch: self = .pinMismatch
        case X509_V_ERR_DANE_NO_MATCH: self = .tlsaMismatch
        case X509_V_ERR_CERT_CHAIN_TOO_LONG: self = .certificateTooLarge
        default: self = .certificateRejected
        }
    }
}

extension TLSError.Code {
    /// The server matches none of the usable TLSA records.
    public static let tlsaMismatch = TLSError.Code("tlsaMismatch", fault: .certificate)
}

/// Limits on the keys in a peer's certificates, which bound the cost of verifying a signature.
///
/// OpenSSL's own limit for RSA is 16,384 bits, and it allows exponents of any length for keys of up to 3,072
/// bits. Verification with such a key can cost two hundred times as much as usual.
enum PeerKeyBounds {
    private static let bitsOfRSA: Int32 = 8192
    private static let bitsOfExponent: Int32 = 64
    private static let bitsOfCurve: Int32 = 521

    /// Returns the fault of a certificate's key as the end of a sentence. Returns `nil` if the key is
    /// acceptable, or if OpenSSL cannot use it at all.
    static func complaint(about certificate: OpaquePointer) -> String? {
        X509_get0_pubkey(certificate).flatMap { complaint(aboutKey: $0) }
    }

    static func complaint(aboutKey key: OpaquePointer) -> String? {
        let bits = EVP_PKEY_get_bits(key)
        if EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 {
            if bits > bitsOfRSA { return "has an RSA key of \(bits) bits, but at most \(bitsOfRSA) are accepted" }
            let exponent = bitsOfExponent(of: key)
            return exponent > Self.bitsOfExponent
                ? "has an RSA key with an exponent of \(exponent) bits, but at most \(Self.bitsOfExponent) are accepted"
                : nil
        }
        if EVP_PKEY_is_a(key, "EC") == 1 {
            if bits > bitsOfCurve { return "has a key on a \(bits)-bit curve, but at most \(bitsOfCurve) bits are accepted" }
            return describesItsCurve(key) ? "has a key on an unnamed curve" : nil
        }
        return refusedKinds.contains { EVP_PKEY_is_a(key, $0) == 1 } ? "has a key of an unsupported type" : nil
    }

    private static let refusedKinds = ["DSA", "DH", "X9.42 DH"]

    private static func bitsOfExponent(of key: OpaquePointer) -> Int32 {
        var exponent: OpaquePointer?
        guard EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &exponent) == 1 else { return .max }
        defer { BN_free(exponent) }
        return BN_num_bits(exponent)
    }

    private static func describesItsCurve(_ key: OpaquePointer) -> Bool {
        var answer: Int32 = 0
        guard EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &answer) == 1 else { return true }
        return answer != 0
    }
}

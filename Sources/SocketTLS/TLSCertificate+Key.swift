internal import COpenSSL

extension TLSCertificate {
    /// The kind of the public key and its size for people, such as "RSA 2048 bits", "ECDSA P-256" or
    /// "Ed25519". The form may change: in code, use `publicKeyKind` and `publicKeyBits`.
    public var publicKeyDescription: String {
        switch publicKeyKind {
        case "EC": "ECDSA " + (publicKeyCurve ?? "\(publicKeyBits) bits")
        case "ED25519": "Ed25519"
        case "ED448": "Ed448"
        case "": "unknown"
        default: "\(publicKeyKind) \(publicKeyBits) bits"
        }
    }

    /// OpenSSL's name for the kind of the public key, such as "RSA", "EC" or "ED25519". Empty if OpenSSL
    /// does not support the key.
    public var publicKeyKind: String {
        guard let key = X509_get0_pubkey(handle.x509), let name = EVP_PKEY_get0_type_name(key) else { return "" }
        return String(cString: name)
    }

    /// The size of the public key in bits: the modulus of an RSA key, or the field of an elliptic curve. 0 if
    /// OpenSSL does not support the key.
    public var publicKeyBits: Int {
        X509_get0_pubkey(handle.x509).map { Int(EVP_PKEY_get_bits($0)) } ?? 0
    }

    /// The strength of the public key in bits: 112 for RSA with 2,048 bits, 128 for P-256 (NIST SP 800-57,
    /// section 5.6.1). 0 if OpenSSL does not support the key.
    public var publicKeySecurityBits: Int {
        X509_get0_pubkey(handle.x509).map { Int(EVP_PKEY_get_security_bits($0)) } ?? 0
    }

    /// The name of the public key's curve, such as "P-256", "P-384" or "secp256k1". `nil` for other kinds of
    /// keys.
    public var publicKeyCurve: String? {
        guard publicKeyKind == "EC", let key = X509_get0_pubkey(handle.x509) else { return nil }
        var name = [CChar](repeating: 0, count: 80)
        var length = 0
        guard EVP_PKEY_get_group_name(key, &name, name.count, &length) == 1 else { return nil }
        let curve = String(decoding: name.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return EC_curve_nid2nist(OBJ_txt2nid(curve)).map { String(cString: $0) } ?? curve
    }

    /// OpenSSL's name for the algorithm with which the issuer signed the certificate, such as
    /// "sha256WithRSAEncryption" or "ecdsa-with-SHA256".
    public var signatureAlgorithm: String {
        OBJ_nid2ln(X509_get_signature_nid(handle.x509)).map { String(cString: $0) } ?? ""
    }

    /// Whether the certificate belongs to an authority, which may issue other certificates (basicConstraints
    /// with CA:TRUE).
    public var isAuthority: Bool { X509_check_ca(handle.x509) == 1 }
}

internal import COpenSSL

/// What a peer's certificates may cost this side: how many there are, and how expensive a signature of their
/// keys is to verify.
///
/// OpenSSL's own bounds are 16,384 bits for RSA, and for keys of up to 3,072 bits an exponent of any length:
/// two hundred times what a usual one costs.
enum PeerKeyBounds {
    private static let bitsOfRSA: Int32 = 8192
    private static let bitsOfExponent: Int32 = 64
    private static let bitsOfCurve: Int32 = 521

    /// What is wrong with the key of a certificate, as the end of a sentence; nil when nothing is, or when
    /// OpenSSL cannot use the key at all.
    static func complaint(about certificate: OpaquePointer) -> String? {
        guard let key = X509_get0_pubkey(certificate) else { return nil }
        let bits = EVP_PKEY_get_bits(key)
        if EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 {
            if bits > bitsOfRSA { return "has an RSA key of \(bits) bits, and no more than \(bitsOfRSA) are accepted" }
            let exponent = bitsOfExponent(of: key)
            return exponent > Self.bitsOfExponent
                ? "has an RSA key with an exponent of \(exponent) bits, and no more than \(Self.bitsOfExponent) are accepted"
                : nil
        }
        if EVP_PKEY_is_a(key, "EC") == 1 {
            if bits > bitsOfCurve { return "has a key on a curve of \(bits) bits, and no more than \(bitsOfCurve) are accepted" }
            return describesItsCurve(key) ? "has a key on a curve without a name" : nil
        }
        return refusedKinds.contains { EVP_PKEY_is_a(key, $0) == 1 } ? "has a key of a kind that is not accepted" : nil
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

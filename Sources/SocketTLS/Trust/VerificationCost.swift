internal import COpenSSL

/// The cost of verifying the signatures of a chain, in microseconds of a processor of 2024: an estimate
/// that tells a chain of milliseconds from a usual one.
enum VerificationCost {
    /// Two milliseconds: a chain of three keys on P-384 stays below.
    private static let limit = 2000

    /// Whether a thread that serves others leaves the chain to another one.
    static func isHigh(_ chain: OpaquePointer?, _ rules: TrustRules) -> Bool {
        var sum = 0
        for index in 0..<COpenSSL_sk_X509_num(chain) {
            guard let certificate = COpenSSL_sk_X509_value(chain, index) else { continue }
            sum += cost(of: certificate)
        }
        // A list of revoked certificates has a signature too.
        return (rules.revocation == nil ? sum : 2 * sum) > limit
    }

    /// Of one signature that is made with the key of a certificate.
    private static func cost(of certificate: OpaquePointer) -> Int {
        guard let key = X509_get0_pubkey(certificate) else { return 0 }
        let bits = Int(EVP_PKEY_get_bits(key))
        if EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 { return bits * bits / 280_000 }
        // OpenSSL has code of its own for P-256 and Curve25519.
        return bits <= 256 ? 80 : 600
    }
}

internal import COpenSSL

/// The estimated cost of verifying a chain's signatures, in microseconds on a processor from 2024. The
/// estimate separates chains that take milliseconds from ordinary chains.
enum VerificationCost {
    /// Two milliseconds. A chain of three P-384 keys stays below this limit.
    private static let limit = 2000

    /// Whether to run the verification on another thread, so that it does not block an event loop.
    static func isHigh(_ chain: OpaquePointer?, _ rules: TrustRules) -> Bool {
        var sum = 0
        for index in 0..<COpenSSL_sk_X509_num(chain) {
            guard let certificate = COpenSSL_sk_X509_value(chain, index) else { continue }
            sum += cost(of: certificate)
        }
        // A certificate revocation list has a signature too.
        return (rules.revocation == nil ? sum : 2 * sum) > limit
    }

    /// Returns the cost of verifying one signature made with a certificate's key.
    private static func cost(of certificate: OpaquePointer) -> Int {
        guard let key = X509_get0_pubkey(certificate) else { return 0 }
        let bits = Int(EVP_PKEY_get_bits(key))
        if EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 { return bits * bits / 280_000 }
        // OpenSSL has optimized code for P-256 and Curve25519.
        return bits <= 256 ? 80 : 600
    }
}

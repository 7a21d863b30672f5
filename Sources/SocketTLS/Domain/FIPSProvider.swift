internal import COpenSSL

/// OpenSSL's provider of validated algorithms.
enum FIPSProvider {
    /// Throws unless it is there, and has passed its own tests.
    static func require() throws(TLSError) {
        // It stays loaded, beside the others: a policy chooses by a property ("fips=yes").
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? ""
        _ = try OpenSSLCall.require(
            "OSSL_PROVIDER_try_load", or: .invalidSettings,
            "The TLS policy requires FIPS, and this OpenSSL (\(version)) has no FIPS provider that can be loaded."
        ) { OSSL_PROVIDER_available(nil, "fips") == 1 || OSSL_PROVIDER_try_load(nil, "fips", 1) != nil ? true : nil }
    }
}

internal import COpenSSL

enum FIPSProvider {
    /// Throws unless the provider can be loaded and has passed its self-tests.
    static func require() throws(TLSError) {
        // The provider stays loaded together with OpenSSL's other providers. A policy selects it with a
        // property ("fips=yes").
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? ""
        _ = try OpenSSLCall.require(
            "OSSL_PROVIDER_try_load", or: .invalidSettings,
            "the TLS policy requires FIPS, but no FIPS provider can be loaded into this OpenSSL (\(version))"
        ) { OSSL_PROVIDER_available(nil, "fips") == 1 || OSSL_PROVIDER_try_load(nil, "fips", 1) != nil ? true : nil }
    }
}

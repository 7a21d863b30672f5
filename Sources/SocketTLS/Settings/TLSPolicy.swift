/// The versions, cipher suites, groups and signature algorithms that a connection may negotiate, in order of
/// preference.
///
/// Start from a preset and change what differs. If a name is not known to the loaded OpenSSL, using the
/// settings fails with an error that lists the known names.
///
/// ```swift
/// settings.policy = .intermediate
/// settings.policy.groups = ["x25519", "secp384r1"]
/// ```
///
/// Some rules apply to every policy. Each key exchange is ephemeral, except with `constrainedDevices`, and
/// uses an elliptic curve or ML-KEM: a key exchange over a finite field costs a server a hundred times as
/// much CPU time as X25519. Anonymous and unencrypted cipher suites are never used. PSK suites are used only
/// if `TLSServerProof` or `TLSClients` enables pre-shared keys, which adds the suites automatically.
/// Compression and renegotiation are disabled.
public struct TLSPolicy: Sendable, Hashable {
    /// The oldest version to accept. `TLSSettings.minimumVersion` can only be stricter.
    public var minimumVersion: TLSProtocolVersion
    /// The cipher suites for all versions, by IANA or OpenSSL name, in order of preference.
    ///
    /// One list contains the suites of TLS 1.3 and of TLS 1.2, and each version uses its own. DTLS uses the
    /// TLS 1.2 AEAD suites: if a CBC suite were used, an attacker could close a connection with a forged
    /// record.
    public var cipherSuites: [String]
    /// The key exchange groups, by IANA or OpenSSL name, in order of preference. In TLS 1.2, the list also
    /// limits the curves that certificates may use (RFC 8422, section 5.1.1).
    ///
    /// The presets add X25519MLKEM768 as the first choice if the loaded OpenSSL supports it (3.5 or newer),
    /// and P-521 if the peer may present a certificate. A custom list is used unchanged.
    public var groups: [String]
    /// The signature algorithms for handshakes and certificates, by TLS 1.3 name, in order of preference. The
    /// presets add ML-DSA as the first choice if the loaded OpenSSL supports it.
    public var signatureAlgorithms: [String]
    /// OpenSSL's security level, from 2 to 5. Level 2 means 112 bits, so RSA keys need at least 2,048 bits.
    /// Level 3 means 128 bits, level 4 means 192, and level 5 means 256 (SSL_CTX_set_security_level(3)). A
    /// higher level in openssl.cnf takes precedence.
    public var securityLevel: Int
    /// Whether the server's order of cipher suites takes precedence, with ChaCha20 first for clients that
    /// prefer it. If `false`, the client's order takes precedence.
    public var prefersServerCipherSuites: Bool
    /// Whether every algorithm must be provided by OpenSSL's FIPS provider (fips_module(7)). Defaults to
    /// false.
    ///
    /// `startTLS` throws `invalidSettings` if the loaded OpenSSL has no working FIPS provider. The provider
    /// does not include X25519 and ChaCha20, so start from the `fips` preset.
    public var requiresFIPS: Bool
    /// Whether pre-shared keys may also be used with the TLS 1.2 suites of constrained devices: see
    /// `constrainedDevices`. Defaults to false.
    public var allowsConstrainedDevices = false

    /// TLS 1.3 only. Corresponds to Mozilla's profile of the same name.
    public static let modern = preset(.tls13, suitesOfTLS13)

    /// TLS 1.2 and 1.3, with AEAD suites that have an ephemeral key exchange. This is the default, and
    /// corresponds to Mozilla's profile of the same name.
    public static let intermediate = preset(.tls12, suitesOfTLS13 + suitesOfTLS12)

    /// Like `intermediate`, plus the TLS 1.2 CBC suites, for old peers. Attacks on CBC are prevented only by
    /// OpenSSL's own defenses (encrypt-then-MAC, constant time).
    public static let compatible = preset(.tls12, suitesOfTLS13 + suitesOfTLS12 + oldSuitesOfTLS12)

    /// TLS 1.2 and 1.3 with algorithms from OpenSSL's FIPS provider only.
    public static let fips = {
        var policy = preset(.tls12, (suitesOfTLS13 + suitesOfTLS12).filter { !$0.contains("CHACHA20") })
        policy.groups = ["secp256r1", "secp384r1"]
        policy.signatureAlgorithms.removeAll { $0.hasPrefix("ed") }
        policy.requiresFIPS = true
        return policy
    }()

    /// Like `intermediate`, plus TLS 1.2 suites for devices with little memory and processing power:
    /// TLS_PSK_WITH_AES_128_CCM_8, which CoAP requires (RFC 7252, section 9.1.3.1), and
    /// TLS_PSK_WITH_AES_128_GCM_SHA256.
    ///
    /// **These suites are weaker, and are used only with pre-shared keys.** They have no forward secrecy:
    /// anyone who learns a device's key can decrypt all traffic recorded earlier. The tags of CCM_8 have 8
    /// bytes instead of 16. Use this policy only for devices that support nothing else, with a different key
    /// for each device. By default, a server prefers ECDHE-PSK if the client supports it. The security level
    /// must be 2.
    public static let constrainedDevices = {
        var policy = intermediate
        policy.allowsConstrainedDevices = true
        return policy
    }()

    private static func preset(_ minimumVersion: TLSProtocolVersion, _ cipherSuites: [String]) -> TLSPolicy {
        TLSPolicy(
            minimumVersion: minimumVersion, cipherSuites: cipherSuites, groups: standardGroups,
            signatureAlgorithms: standardSignatures, securityLevel: 2, prefersServerCipherSuites: true, requiresFIPS: false)
    }

    // Longest keys first, in OpenSSL's order.
    private static let suitesOfTLS13 = [
        "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
    ]
    private static let suitesOfTLS12 = [
        "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
    ]
    private static let oldSuitesOfTLS12 = [
        "ECDHE-ECDSA-AES256-SHA384", "ECDHE-RSA-AES256-SHA384", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256",
        "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
    ]
    private static let standardGroups = ["x25519", "secp256r1", "secp384r1"]
    private static let standardSignatures = [
        "ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384", "ecdsa_secp521r1_sha512", "ed25519", "ed448",
        "rsa_pss_pss_sha256", "rsa_pss_pss_sha384", "rsa_pss_pss_sha512", "rsa_pss_rsae_sha256", "rsa_pss_rsae_sha384",
        "rsa_pss_rsae_sha512", "rsa_pkcs1_sha256", "rsa_pkcs1_sha384", "rsa_pkcs1_sha512",
    ]

    /// Whether the list is the preset's, to which names of newer algorithms are added. A custom list is used
    /// unchanged.
    var usesStandardGroups: Bool { groups == Self.standardGroups }
    var usesStandardSignatures: Bool { signatureAlgorithms == Self.standardSignatures }
}

/// Cipher suites by their OpenSSL names.
struct CipherSuiteNames {
    var tls13: [String]
    var tls12: [String]
    let allowsTLS13: Bool
    let allowsTLS12: Bool
}

/// The versions, cipher suites, groups and signatures that a connection may negotiate, in the order of
/// preference.
///
/// Begin with a preset and change what differs. A name that the loaded OpenSSL does not know is an error when
/// the settings are used, which lists the names that it knows.
///
/// ```swift
/// settings.policy = .intermediate
/// settings.policy.groups = ["x25519", "secp384r1"]
/// ```
///
/// Some rules hold for every policy. Each key exchange is ephemeral and on a curve, or with ML-KEM: a finite
/// field costs a server a hundred times as much as X25519. No cipher suite is anonymous, without encryption,
/// or with a shared key (`TLSServerProof` and `TLSClients` add their own). There is no compression and no
/// renegotiation.
public struct TLSPolicy: Sendable, Hashable {
    /// The oldest version that is accepted. `TLSSettings.minimumVersion` can only be stricter.
    public var minimumVersion: TLSVersion
    /// The cipher suites of both versions, the preferred one first, by their IANA or OpenSSL names.
    ///
    /// The suites of TLS 1.3 and of TLS 1.2 are in one list, and each version uses its own. DTLS uses the
    /// suites of TLS 1.2 that have an AEAD: with CBC anyone could end a connection by a forged record.
    public var cipherSuites: [String]
    /// The groups of the key exchange, the preferred one first, by the names of IANA or OpenSSL. In TLS 1.2
    /// the list also limits the curves of certificates (RFC 8422, section 5.1.1).
    ///
    /// The presets put X25519MLKEM768 first where the loaded OpenSSL has it (3.5), and allow P-521 where the
    /// peer may show a certificate. A list of your own is used as it is.
    public var groups: [String]
    /// The signature algorithms of handshakes and certificates, the preferred one first, by their names in
    /// TLS 1.3. The presets put ML-DSA first where the loaded OpenSSL has it.
    public var signatureAlgorithms: [String]
    /// OpenSSL's security level, 2 to 5: 2 is 112 bits, so RSA keys have 2,048 or more; 3 is 128, 4 is 192, 5
    /// is 256 (SSL_CTX_set_security_level(3)). A higher level in openssl.cnf counts.
    public var securityLevel: Int
    /// Whether a server's order of cipher suites decides, with ChaCha20 first for a client that prefers it;
    /// otherwise the client's order decides.
    public var serverChooses: Bool
    /// Whether every algorithm must come from OpenSSL's FIPS provider (fips_module(7)); false by default.
    ///
    /// `startTLS` throws `invalidSettings` if the loaded OpenSSL has no such provider that works. X25519 and
    /// ChaCha20 are not in it: begin with `fips`.
    public var requiresFIPS: Bool

    /// TLS 1.3 only. Mozilla's profile of this name.
    public static let modern = preset(.tls13, suitesOfTLS13)

    /// TLS 1.2 and 1.3, with suites that have an AEAD and an ephemeral key. The default, and Mozilla's
    /// profile of this name.
    public static let intermediate = preset(.tls12, suitesOfTLS13 + suitesOfTLS12)

    /// As `intermediate`, and for old peers also suites of TLS 1.2 with CBC. OpenSSL's own defences against
    /// attacks on CBC count (encrypt-then-MAC, constant time).
    public static let compatible = preset(.tls12, suitesOfTLS13 + suitesOfTLS12 + oldSuitesOfTLS12)

    /// TLS 1.2 and 1.3 with what OpenSSL's FIPS provider offers, and from nowhere else.
    public static let fips = {
        var policy = preset(.tls12, (suitesOfTLS13 + suitesOfTLS12).filter { !$0.contains("CHACHA20") })
        policy.groups = ["secp256r1", "secp384r1"]
        policy.signatureAlgorithms.removeAll { $0.hasPrefix("ed") }
        policy.requiresFIPS = true
        return policy
    }()

    private static func preset(_ minimumVersion: TLSVersion, _ cipherSuites: [String]) -> TLSPolicy {
        TLSPolicy(
            minimumVersion: minimumVersion, cipherSuites: cipherSuites, groups: standardGroups,
            signatureAlgorithms: standardSignatures, securityLevel: 2, serverChooses: true, requiresFIPS: false)
    }

    // The longest keys first, as OpenSSL has it.
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

    /// The presets' lists have places for the newest names; a list of your own is used as it is.
    var usesStandardGroups: Bool { groups == Self.standardGroups }
    var usesStandardSignatures: Bool { signatureAlgorithms == Self.standardSignatures }
}

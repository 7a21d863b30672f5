// The versions and algorithms that a context may negotiate. Rules:
//  1. Everything is set here. Nothing depends on openssl.cnf or on OpenSSL's defaults, which may be weak or
//     expensive.
//  2. Every key exchange is ephemeral and uses an elliptic curve. A key exchange over a finite field costs a
//     server a hundred times as much CPU time as X25519, and the client can choose it (D(HE)at,
//     CVE-2002-20001). With static RSA, an attacker who obtains the private key can decrypt recorded traffic.
//  3. Every handshake is either signed with a certificate's key or uses a pre-shared key from the settings.
//     No policy can name anonymous, password-based or shared-key cipher suites.
//  4. The presets try the newest names first and omit those that the loaded OpenSSL does not know, because
//     its version may differ from the headers. A name that the program specifies must be known.
//  5. The security level comes from the policy, or from openssl.cnf if its level is higher.

internal import COpenSSL

struct ContextParameters {
    let policy: TLSPolicy
    var proof = TLSProof.certificates

    /// Includes the ML-KEM hybrid, which requires OpenSSL 3.5. A client sends key shares for the two groups
    /// marked with `*`.
    private static let newestGroups = "?*X25519MLKEM768 / ?*X25519:?secp256r1 / ?secp384r1"
    /// In TLS 1.2, the list also limits the curves that the peer's certificate may use (RFC 8422, 5.1.1).
    /// This group is added only if the peer may present a certificate.
    private static let groupOfCertificates = ":secp521r1"
    /// ML-DSA, which requires OpenSSL 3.5.
    private static let newestSignatures = "?mldsa65:?mldsa87:?mldsa44:"

    /// - Parameter verifiesPeer: Whether the peer may present a certificate.
    func set(on context: OpaquePointer, verifiesPeer: Bool) throws(TLSError) {
        guard (2...5).contains(policy.securityLevel) else {
            throw Self.invalid("securityLevel must be from 2 to 5, but is \(policy.securityLevel)")
        }
        SSL_CTX_set_security_level(context, max(Int32(policy.securityLevel), SSL_CTX_get_security_level(context)))
        if policy.allowsConstrainedDevices {
            guard policy.securityLevel == 2 else {
                throw Self.invalid(
                    "allowsConstrainedDevices requires securityLevel 2, but it is \(policy.securityLevel)")
            }
            // OpenSSL 3.2 and later count the 8-byte tag of these suites as 64 bits of security, and level 2
            // requires 112.
            COpenSSL_CTX_allowConstrainedSuites(context)
        }
        if !policy.prefersServerCipherSuites { SSL_CTX_clear_options(context, COpenSSL_serverPreferenceOptions()) }
        try setCipherSuites(on: context)
        try setGroups(on: context, verifiesPeer)
        try setSignatures(on: context)
        try OpenSSLCall.requireSuccess("SSL_CTX_set_block_padding") { SSL_CTX_set_block_padding(context, 0) }
    }

    // MARK: - Cipher suites

    private func setCipherSuites(on context: OpaquePointer) throws(TLSError) {
        var suites: [CipherSuite] = []
        for name in policy.cipherSuites { suites.append(try CipherSuite(name)) }
        guard Set(suites.map(\.name)).count == suites.count else {
            throw Self.invalid("cipherSuites lists a suite twice")
        }
        if Self.oldest(of: context).isForDatagrams {
            // OpenSSL closes a DTLS connection when a CBC record has a wrong MAC, and such a record is easily
            // forged.
            suites.removeAll { !$0.hasAEAD }
            guard suites.contains(where: { !$0.isOfTLS13 }) || proof.bringsCipherSuites else {
                throw Self.invalid("cipherSuites has no AEAD suite for DTLS 1.2: CBC suites are not used with DTLS")
            }
        }
        var names = CipherSuiteNames(
            tls13: suites.filter(\.isOfTLS13).map(\.name), tls12: suites.filter { !$0.isOfTLS13 }.map(\.name),
            allowsTLS13: Self.allowsTLS13(context), allowsTLS12: Self.oldest(of: context) < .tls13)
        if names.tls12.isEmpty, Self.oldest(of: context) < .tls13 {
            throw Self.invalid("cipherSuites has no TLS 1.2 suite, but minimumVersion allows TLS 1.2")
        }
        if names.tls13.isEmpty, Self.allowsTLS13(context) {
            throw Self.invalid("cipherSuites has no TLS 1.3 suite, but maximumVersion allows TLS 1.3")
        }
        try proof.restrict(&names, policy)
        // OpenSSL requires a TLS 1.2 suite even if TLS 1.2 is not used.
        let old = names.tls12.isEmpty ? "ECDHE-ECDSA-AES256-GCM-SHA384" : names.tls12.joined(separator: ":")
        try OpenSSLCall.requireSuccess("SSL_CTX_set_cipher_list") { SSL_CTX_set_cipher_list(context, old) }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ciphersuites") {
            SSL_CTX_set_ciphersuites(context, names.tls13.joined(separator: ":"))
        }
    }

    private static func oldest(of context: OpaquePointer) -> TLSProtocolVersion {
        TLSProtocolVersion(wireNumber: Int32(SSL_CTX_ctrl(context, SSL_CTRL_GET_MIN_PROTO_VERSION, 0, nil)))
    }

    private static func allowsTLS13(_ context: OpaquePointer) -> Bool {
        let newest = Int32(SSL_CTX_ctrl(context, SSL_CTRL_GET_MAX_PROTO_VERSION, 0, nil))
        return newest == 0 || TLSProtocolVersion(wireNumber: newest) >= .tls13
    }

    // MARK: - Groups and signatures

    private func setGroups(on context: OpaquePointer, _ verifiesPeer: Bool) throws(TLSError) {
        let list = policy.groups.joined(separator: ":")
        if policy.usesStandardGroups {
            let addition = verifiesPeer ? Self.groupOfCertificates : ""
            return try setFirst(of: [Self.newestGroups + addition, list + addition], "SSL_CTX_set1_groups_list") {
                COpenSSL_CTX_setGroups(context, $0)
            }
        }
        try Self.check(policy.groups, "group", Self.knownGroups) { COpenSSL_CTX_setGroups(context, $0) > 0 }
        if let field = policy.groups.first(where: { $0.lowercased().hasPrefix("ffdhe") }) {
            throw Self.invalid(
                "the finite-field group \(field) costs a server a hundred times as much CPU time as X25519: use X25519")
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set1_groups_list") { COpenSSL_CTX_setGroups(context, list) }
    }

    private func setSignatures(on context: OpaquePointer) throws(TLSError) {
        let list = policy.signatureAlgorithms.joined(separator: ":")
        var lists = [list]
        if policy.usesStandardSignatures {
            lists.insert(Self.newestSignatures + list, at: 0)
        } else {
            try Self.check(policy.signatureAlgorithms, "signature algorithm", Self.knownSignatures) {
                COpenSSL_CTX_setSignatureAlgorithms(context, $0) > 0
            }
        }
        try setFirst(of: lists, "SSL_CTX_set1_sigalgs_list") { COpenSSL_CTX_setSignatureAlgorithms(context, $0) }
        try setFirst(of: lists, "SSL_CTX_set1_client_sigalgs_list") { COpenSSL_CTX_setClientSignatureAlgorithms(context, $0) }
    }

    private func setFirst(of lists: [String], _ operation: String, _ body: (String) -> Int32) throws(TLSError) {
        try OpenSSLCall.requireSuccess(operation) { lists.contains { body($0) > 0 } ? 1 : 0 }
    }

    // MARK: - Names

    /// OpenSSL cannot list the names that it supports, so each of these names is tried.
    private static let knownGroups = [
        "X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024", "x25519", "x448", "secp256r1", "secp384r1", "secp521r1",
        "brainpoolP256r1", "brainpoolP384r1", "brainpoolP512r1",
    ]
    private static let knownSignatures = [
        "mldsa44", "mldsa65", "mldsa87", "ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384", "ecdsa_secp521r1_sha512",
        "ed25519", "ed448", "rsa_pss_pss_sha256", "rsa_pss_pss_sha384", "rsa_pss_pss_sha512", "rsa_pss_rsae_sha256",
        "rsa_pss_rsae_sha384", "rsa_pss_rsae_sha512", "rsa_pkcs1_sha256", "rsa_pkcs1_sha384", "rsa_pkcs1_sha512",
    ]

    /// Requires that OpenSSL supports every name.
    private static func check(
        _ names: [String], _ kind: String, _ candidates: [String], isKnown: (String) -> Bool
    ) throws(TLSError) {
        func knows(_ name: String) -> Bool {
            // These names and characters have a special meaning in OpenSSL's lists.
            guard !name.isEmpty, name.uppercased() != "DEFAULT",
                name.utf8.allSatisfy({ $0 > 0x20 && !":?*-/+,".utf8.contains($0) })
            else { return false }
            return OpenSSLCall.attempt { isKnown(name) ? true : nil }.value != nil
        }
        guard !names.isEmpty else { throw invalid("the list of \(kind)s is empty") }
        guard Set(names.map { $0.lowercased() }).count == names.count else { throw invalid("a \(kind) is listed twice") }
        for name in names where !knows(name) {
            let known = candidates.filter { knows($0) }.joined(separator: ", ")
            throw invalid("this OpenSSL does not support the \(kind) \"\(name.printable)\": choose from \(known)")
        }
    }

    static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the TLS policy cannot be used: \(complaint)", operation: "TLSPolicy")
    }
}

private struct CipherSuite {
    let name: String
    let isOfTLS13: Bool
    let hasAEAD: Bool

    /// All suites that a policy may name, in OpenSSL's order.
    private static let allowed: [(openSSL: String, iana: String, isOfTLS13: Bool, hasAEAD: Bool)] = {
        guard let context = SSL_CTX_new(TLS_method()) else { return [] }
        defer { SSL_CTX_free(context) }
        SSL_CTX_set_security_level(context, 0)
        _ = OpenSSLCall.attempt { SSL_CTX_set_cipher_list(context, "ALL") }
        let known13 = [
            "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256", "TLS_AES_128_CCM_SHA256",
        ]
        _ = OpenSSLCall.attempt { SSL_CTX_set_ciphersuites(context, known13.joined(separator: ":")) }
        let list = SSL_CTX_get_ciphers(context)
        return (0..<COpenSSL_sk_SSL_CIPHER_count(list)).compactMap { index in
            guard let cipher = COpenSSL_sk_SSL_CIPHER(list, index), let name = SSL_CIPHER_get_name(cipher),
                let iana = SSL_CIPHER_standard_name(cipher)
            else { return nil }
            let exchange = SSL_CIPHER_get_kx_nid(cipher)
            let isOfTLS13 = exchange == NID_kx_any
            let isSigned = [NID_auth_ecdsa, NID_auth_rsa, NID_auth_any].contains(SSL_CIPHER_get_auth_nid(cipher))
            guard isOfTLS13 || exchange == NID_kx_ecdhe, isSigned, SSL_CIPHER_get_cipher_nid(cipher) != NID_undef,
                SSL_CIPHER_get_bits(cipher, nil) >= 128
            else { return nil }
            return (String(cString: name), String(cString: iana), isOfTLS13, SSL_CIPHER_is_aead(cipher) == 1)
        }
    }()

    init(_ name: String) throws(TLSError) {
        guard let found = Self.allowed.first(where: { $0.openSSL == name || $0.iana == name }) else {
            let names = Self.allowed.map(\.iana).joined(separator: ", ")
            throw ContextParameters.invalid(
                "the cipher suite \"\(name.printable)\" is not allowed in a policy with this version of OpenSSL: choose from \(names)"
            )
        }
        self.name = found.openSSL
        (isOfTLS13, hasAEAD) = (found.isOfTLS13, found.hasAEAD)
    }
}

/// A list of ALPN names in wire format, at a fixed address.
final class ApplicationProtocols: @unchecked Sendable {
    // Unchecked: the memory is written once, before another thread can access it.
    let wireForm: UnsafeBufferPointer<UInt8>

    init(_ names: [String]) {
        let bytes = names.flatMap { [UInt8(truncatingIfNeeded: $0.utf8.count)] + Array($0.utf8) }
        let memory = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = memory.initialize(from: bytes)
        wireForm = UnsafeBufferPointer(memory)
    }

    deinit { wireForm.deallocate() }

    /// Makes a client offer the whole list. (Unlike other OpenSSL functions, this one returns 0 on success.)
    func offer(on context: OpaquePointer) -> Int32 {
        SSL_CTX_set_alpn_protos(context, wireForm.baseAddress, UInt32(wireForm.count)) == 0 ? 1 : 0
    }

    /// Makes a server choose the first of its own names that the client offers. The handshake fails if no
    /// name matches (RFC 7301, 3.2).
    func choose(on context: OpaquePointer) {
        let list = Unmanaged.passUnretained(self).toOpaque()
        SSL_CTX_set_alpn_select_cb(
            context,
            { _, chosen, chosenLength, offered, offeredLength, list in
                guard let list, let chosen, let chosenLength else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                let own = Unmanaged<ApplicationProtocols>.fromOpaque(list).takeUnretainedValue().wireForm
                var selected: UnsafeMutablePointer<UInt8>?
                let answer = SSL_select_next_proto(
                    &selected, chosenLength, own.baseAddress, UInt32(own.count), offered, offeredLength)
                guard answer == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                chosen.pointee = UnsafePointer(selected)
                return SSL_TLSEXT_ERR_OK
            }, list)
    }
}

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

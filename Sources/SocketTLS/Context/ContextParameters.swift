// What a context may negotiate. Rules:
//  1. Everything here is set; nothing depends on openssl.cnf or on OpenSSL's defaults, which may be weak or
//     expensive.
//  2. Every key exchange is ephemeral and on a curve. A finite field costs a server a hundred times as much
//     as X25519, and the client chooses it (D(HE)at, CVE-2002-20001). Static RSA protects nothing once the
//     key is known.
//  3. Every cipher is an AEAD, and the key of a certificate signs every handshake: no anonymous ciphers,
//     passwords or shared keys.
//  4. The newest names are tried first, and left out if the loaded OpenSSL does not know them: the headers
//     may be of another version.
//  5. The security level is 2 (112 bits, so RSA keys have 2,048 or more), or that of openssl.cnf if it is
//     higher.

internal import COpenSSL

/// The cipher suites, groups, signatures and security level of every context.
enum ContextParameters {
    /// The order is OpenSSL's own: the longest keys first.
    private static let cipherSuites = [
        "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
    ]
    private static let cipherSuitesOfTLS13 = [
        "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
    ]
    /// With the ML-KEM hybrid, which needs OpenSSL 3.5. A client sends key shares for the two marked with
    /// `*`.
    private static let newestGroups = "?*X25519MLKEM768 / ?*X25519:?secp256r1 / ?secp384r1"
    private static let groups = "X25519:secp256r1:secp384r1"
    /// In TLS 1.2 the list also limits the curves of the peer's certificate (RFC 8422, 5.1.1). It is added
    /// only if the peer may show one.
    private static let groupOfCertificates = ":secp521r1"
    /// With ML-DSA, which needs OpenSSL 3.5.
    private static let newestSignatures = "?mldsa65:?mldsa87:?mldsa44:" + signatures
    private static let signatures = [
        "ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384", "ecdsa_secp521r1_sha512", "ed25519", "ed448",
        "rsa_pss_pss_sha256", "rsa_pss_pss_sha384", "rsa_pss_pss_sha512", "rsa_pss_rsae_sha256", "rsa_pss_rsae_sha384",
        "rsa_pss_rsae_sha512", "rsa_pkcs1_sha256", "rsa_pkcs1_sha384", "rsa_pkcs1_sha512",
    ].joined(separator: ":")
    private static let leastSecurityLevel: Int32 = 2

    /// - Parameter verifiesPeer: True if the peer may show a certificate.
    static func set(on context: OpaquePointer, verifiesPeer: Bool) throws(TLSError) {
        SSL_CTX_set_security_level(context, max(leastSecurityLevel, SSL_CTX_get_security_level(context)))
        try OpenSSLCall.requireSuccess("SSL_CTX_set_cipher_list") {
            SSL_CTX_set_cipher_list(context, cipherSuites.joined(separator: ":"))
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ciphersuites") {
            SSL_CTX_set_ciphersuites(context, cipherSuitesOfTLS13.joined(separator: ":"))
        }
        try setFirst(of: [newestGroups, groups], "SSL_CTX_set1_groups_list") {
            COpenSSL_CTX_setGroups(context, verifiesPeer ? $0 + groupOfCertificates : $0)
        }
        try setFirst(of: [newestSignatures, signatures], "SSL_CTX_set1_sigalgs_list") {
            COpenSSL_CTX_setSignatureAlgorithms(context, $0)
        }
        try setFirst(of: [newestSignatures, signatures], "SSL_CTX_set1_client_sigalgs_list") {
            COpenSSL_CTX_setClientSignatureAlgorithms(context, $0)
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_block_padding") { SSL_CTX_set_block_padding(context, 0) }
    }

    /// Sets the first list that OpenSSL takes.
    private static func setFirst(of lists: [String], _ operation: String, _ body: (String) -> Int32) throws(TLSError) {
        try OpenSSLCall.requireSuccess(operation) { lists.contains { body($0) > 0 } ? 1 : 0 }
    }
}

/// A list of ALPN names in wire form, at a fixed address.
final class ApplicationProtocols: @unchecked Sendable {
    // Unchecked: the memory is written once, before anyone else sees it.
    let wireForm: UnsafeBufferPointer<UInt8>

    init(_ names: [String]) {
        let bytes = names.flatMap { [UInt8(truncatingIfNeeded: $0.utf8.count)] + Array($0.utf8) }
        let memory = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = memory.initialize(from: bytes)
        wireForm = UnsafeBufferPointer(memory)
    }

    deinit { wireForm.deallocate() }

    /// A client offers the whole list. (This function of OpenSSL returns 0 on success, unlike the others.)
    func offer(on context: OpaquePointer) -> Int32 {
        SSL_CTX_set_alpn_protos(context, wireForm.baseAddress, UInt32(wireForm.count)) == 0 ? 1 : 0
    }

    /// A server chooses the first of its own names that the client offers, and ends the handshake if there is
    /// none (RFC 7301, 3.2).
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

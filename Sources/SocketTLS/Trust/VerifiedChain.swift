internal import COpenSSL
internal import FoundationEssentials

/// The chain that OpenSSL has built from the peer's certificate to a trusted one, and what this library
/// checks in it. It lives as long as the verification.
struct VerifiedChain {
    /// The peer's own first.
    let certificates: [OpaquePointer]

    /// The chain of an `X509_STORE_CTX` that has been verified.
    init(of store: OpaquePointer) {
        let stack = X509_STORE_CTX_get0_chain(store)
        certificates = (0..<COpenSSL_sk_X509_num(stack)).compactMap { COpenSSL_sk_X509_value(stack, $0) }
    }

    private init(_ certificates: [OpaquePointer]) {
        self.certificates = certificates
    }

    /// When the first of the certificates ends, the root included, in seconds since 1970.
    var end: Int? { certificates.map { Int(Certificate(sharing: $0).notAfter.timeIntervalSince1970) }.min() }

    /// The peer's own certificate alone.
    var leaf: VerifiedChain { VerifiedChain(Array(certificates.prefix(1))) }

    /// A peer that shows the certificate of an authority: the owner of such a key can issue certificates.
    var authorityFault: PeerTrust.Verdict? {
        guard let leaf = certificates.first, X509_get_extension_flags(leaf) & UInt32(EXFLAG_CA) != 0 else { return nil }
        return .untrusted(
            reason:
                "The certificate of \"\(name(leaf))\" is an authority's (CA:TRUE), which a peer must not show in strict mode.",
            code: X509_V_ERR_INVALID_PURPOSE, depth: 0)
    }

    /// A key that may not sign signs here all the same: in every handshake that we take part in, the peer's
    /// key does nothing else (RFC 8446, 4.4.2.2; RFC 5246, 7.4.2).
    var keyUsageFault: PeerTrust.Verdict? {
        // All bits are set in a certificate without the extension.
        guard let leaf = certificates.first, X509_get_key_usage(leaf) & UInt32(KU_DIGITAL_SIGNATURE) == 0 else { return nil }
        return .untrusted(
            reason:
                "The certificate of \"\(name(leaf))\" has a key that may not sign: its key usage lacks digitalSignature.",
            code: X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE, depth: 0)
    }

    func name(_ certificate: OpaquePointer) -> String {
        Certificate(sharing: certificate).displayName
    }
}

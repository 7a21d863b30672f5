internal import COpenSSL
internal import FoundationEssentials

/// The chain that OpenSSL built from the peer's certificate to a trusted one, with this library's additional
/// checks. Valid only during the verification.
struct VerifiedChain {
    /// The certificates, starting with the peer's own.
    let certificates: [OpaquePointer]

    init(of store: OpaquePointer) {
        let stack = X509_STORE_CTX_get0_chain(store)
        certificates = (0..<COpenSSL_sk_X509_num(stack)).compactMap { COpenSSL_sk_X509_value(stack, $0) }
    }

    private init(_ certificates: [OpaquePointer]) {
        self.certificates = certificates
    }

    /// The earliest expiry of all certificates including the root, in seconds since 1970.
    var end: Int? { certificates.map { Int(TLSCertificate(sharing: $0).notAfter.timeIntervalSince1970) }.min() }

    /// The certificates, usable after the verification.
    var copies: [TLSCertificate] { certificates.map { TLSCertificate(sharing: $0) } }

    var leaf: VerifiedChain { VerifiedChain(Array(certificates.prefix(1))) }

    /// The fault of a peer that presents a CA certificate. The holder of its private key could issue
    /// certificates.
    var authorityFault: PeerTrust.Verdict? {
        guard let leaf = certificates.first, X509_get_extension_flags(leaf) & UInt32(EXFLAG_CA) != 0 else { return nil }
        return .untrusted(
            reason:
                "the certificate of \"\(name(leaf))\" is a CA certificate (CA:TRUE), which strict mode does not accept from a peer",
            code: X509_V_ERR_INVALID_PURPOSE, depth: 0)
    }

    /// The fault of a peer whose key may not be used for signing. In every supported handshake, the peer's
    /// key is used only for signing (RFC 8446, section 4.4.2.2; RFC 5246, section 7.4.2).
    var keyUsageFault: PeerTrust.Verdict? {
        // OpenSSL reports all bits as set for a certificate without the extension.
        guard let leaf = certificates.first, X509_get_key_usage(leaf) & UInt32(KU_DIGITAL_SIGNATURE) == 0 else { return nil }
        return .untrusted(
            reason:
                "the key in the certificate of \"\(name(leaf))\" may not be used for signing: its key usage lacks digitalSignature",
            code: X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE, depth: 0)
    }

    func name(_ certificate: OpaquePointer) -> String {
        TLSCertificate(sharing: certificate).displayName
    }
}

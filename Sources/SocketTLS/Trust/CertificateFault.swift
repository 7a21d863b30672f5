internal import COpenSSL
internal import FoundationEssentials

/// The first thing that OpenSSL found wrong with a chain, and the certificate it found it in.
struct CertificateFault {
    private let code: Int32
    private let depth: Int
    private let certificate: Certificate?
    private let leaf: Certificate?
    private let expectedName: String?

    init(in store: OpaquePointer, _ chain: [Certificate], _ expectedName: String?) {
        let code = X509_STORE_CTX_get_error(store)
        self.code = code == X509_V_OK ? X509_V_ERR_UNSPECIFIED : code
        depth = Int(X509_STORE_CTX_get_error_depth(store))
        certificate = X509_STORE_CTX_get_current_cert(store).map { Certificate(sharing: $0) }
        leaf = chain.first
        self.expectedName = expectedName
    }

    var verdict: PeerTrust.Verdict {
        .untrusted(reason: sentence, code: code, depth: depth)
    }

    private var sentence: String {
        switch TLSError.Code(verifyCode: code) {
        case .certificateExpired: "\(owner) expired on \(day(certificate?.notAfter))."
        case .certificateNotYetValid: "\(owner) is not valid before \(day(certificate?.notBefore))."
        case .hostNameMismatch: "\(owner) is for \(leafNames), and not for \"\(expectedName ?? "")\"."
        case .unknownIssuer: issuerSentence
        default: "\(owner) was refused: \(detail)."
        }
    }

    private var issuerSentence: String {
        guard let certificate, certificate.subject != certificate.issuer else {
            return "\(owner) is self-signed, and not a trusted root (\(detail))."
        }
        return "\(owner) was issued by \"\(certificate.issuer.printable)\", which no trusted root vouches for (\(detail))."
    }

    private var owner: String {
        guard let certificate else { return "The peer's certificate" }
        let subject = "The certificate of \"\(certificate.displayName)\""
        return depth > 0 ? "\(subject), number \(depth) above that of \"\(leaf?.displayName ?? "the peer")\"," : subject
    }

    private var leafNames: String {
        let names = (leaf?.dnsNames ?? []) + (leaf?.ipAddresses ?? [])
        guard !names.isEmpty else { return "no host name at all" }
        let shown = names.prefix(4).map { "\"\($0.printable)\"" }.joined(separator: ", ")
        return names.count > 4 ? "\(shown) and \(names.count - 4) more" : shown
    }

    private var detail: String {
        X509_verify_cert_error_string(Int(code)).map { String(cString: $0) } ?? "error \(code)"
    }

    private func day(_ date: Date?) -> String {
        date?.ISO8601Format() ?? "a date that cannot be read"
    }
}

extension CertificateFault {
    /// The verdict on a chain that costs too much to verify; nil when it does not.
    static func excess(in chain: [Certificate]) -> PeerTrust.Verdict? {
        for (depth, certificate) in chain.enumerated() {
            guard let complaint = PeerKeyBounds.complaint(about: certificate.handle.x509) else { continue }
            return .untrusted(
                reason: "The certificate of \"\(certificate.displayName)\" \(complaint).", code: X509_V_ERR_CERT_REJECTED,
                depth: depth)
        }
        return nil
    }
}

extension TLSError.Code {
    /// The kind of failure behind an `X509_V_ERR_*` code.
    init(verifyCode: Int32) {
        switch verifyCode {
        case X509_V_ERR_CERT_HAS_EXPIRED: self = .certificateExpired
        case X509_V_ERR_CERT_NOT_YET_VALID: self = .certificateNotYetValid
        case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH: self = .hostNameMismatch
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
            X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_UNTRUSTED:
            self = .unknownIssuer
        case X509_V_ERR_CERT_CHAIN_TOO_LONG: self = .certificateTooLarge
        default: self = .certificateRejected
        }
    }
}

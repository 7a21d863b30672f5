internal import COpenSSL

extension TLSARecord {
    /// Whether this library can compare the record with a certificate (RFC 7671, section 10.1). A record with
    /// an unknown number, or with data that cannot match, is skipped.
    public var isUsable: Bool { defect == nil }

    /// The reason that the record is not usable, as the end of a sentence.
    var defect: String? {
        if usage.rawValue > 3 { return "its usage is unknown" }
        if selector.rawValue > 1 { return "its selector is unknown" }
        switch matchingType {
        case .sha256: return data.count == 32 ? nil : "a SHA-256 digest has 32 bytes, and not \(data.count)"
        case .sha512: return data.count == 64 ? nil : "a SHA-512 digest has 64 bytes, and not \(data.count)"
        case .full: return defectOfContents
        default: return "its matching type is unknown"
        }
    }

    private var defectOfContents: String? {
        // Decoding such a key can take a fifth of a second.
        if data.withUnsafeBytes({ CertificateMessage.describesCurve(in: $0) }) { return "its key is on an unnamed curve" }
        if selector == .publicKey {
            return defectOfKey
        }
        guard let certificate = try? TLSCertificate(der: data), X509_get0_pubkey(certificate.handle.x509) != nil else {
            return "its data is not a certificate in DER"
        }
        return PeerKeyBounds.complaint(about: certificate.handle.x509).map { "its certificate \($0)" }
    }

    private var defectOfKey: String? {
        data.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            let key = OpenSSLCall.attempt({ d2i_PUBKEY(nil, &cursor, bytes.count) }).value
            defer { EVP_PKEY_free(key) }
            guard let key, let cursor, let start = bytes.baseAddress, cursor - start == bytes.count else {
                return "its data is not a public key in DER"
            }
            return PeerKeyBounds.complaint(aboutKey: key).map { "its data \($0)" }
        }
    }
}

internal import COpenSSL

extension TLSARecord {
    /// Whether this library can compare the record with a certificate (RFC 7671, section 10.1). A record with
    /// an unknown number, or with data that cannot match, is skipped.
    ///
    /// A record with a key that exceeds a limit of this library, such as an RSA key of 16,384 bits, is usable
    /// but matches no server.
    public var isUsable: Bool {
        if case .unusable = use { false } else { true }
    }

    /// How a client treats a record, and the reason.
    enum Use: Equatable {
        case comparable
        /// The record is well-formed, but its key exceeds a limit of this library. It is not skipped, because
        /// a policy for servers without usable records must not apply to a server with such a record.
        case matchesNothing(String)
        case unusable(String)
    }

    var use: Use {
        if usage.rawValue > 3 { return .unusable("its usage is unknown") }
        if selector.rawValue > 1 { return .unusable("its selector is unknown") }
        switch matchingType {
        case .sha256: return useOfDigest("SHA-256", 32)
        case .sha512: return useOfDigest("SHA-512", 64)
        case .full: return useOfContents
        default: return .unusable("its matching type is unknown")
        }
    }

    private func useOfDigest(_ name: String, _ length: Int) -> Use {
        data.count == length ? .comparable : .unusable("a \(name) digest has \(length) bytes, and not \(data.count)")
    }

    private var useOfContents: Use {
        // Decoding such a key can take a fifth of a second.
        if data.withUnsafeBytes({ CertificateMessage.describesCurve(in: $0) }) {
            return .matchesNothing("its key is on an unnamed curve")
        }
        if selector == .publicKey { return useOfKey }
        guard let certificate = try? TLSCertificate(der: data), X509_get0_pubkey(certificate.handle.x509) != nil else {
            return .unusable("its data is not a certificate in DER")
        }
        return PeerKeyBounds.complaint(about: certificate.handle.x509).map { .matchesNothing("its certificate \($0)") }
            ?? .comparable
    }

    private var useOfKey: Use {
        data.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            let key = OpenSSLCall.attempt({ d2i_PUBKEY(nil, &cursor, bytes.count) }).value
            defer { EVP_PKEY_free(key) }
            guard let key, let cursor, let start = bytes.baseAddress, cursor - start == bytes.count else {
                return .unusable("its data is not a public key in DER")
            }
            return PeerKeyBounds.complaint(aboutKey: key).map { .matchesNothing("its data \($0)") } ?? .comparable
        }
    }
}

extension TLSARecord {
    /// Whether the record precedes another one in an order that has no meaning.
    func precedes(_ other: TLSARecord) -> Bool {
        let own = (usage.rawValue, selector.rawValue, matchingType.rawValue)
        let others = (other.usage.rawValue, other.selector.rawValue, other.matchingType.rawValue)
        return own == others ? data.lexicographicallyPrecedes(other.data) : own < others
    }
}

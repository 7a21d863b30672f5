internal import COpenSSL
public import FoundationEssentials

/// An X.509 certificate.
///
/// Two certificates are equal if their DER encodings are equal. A `TLSCertificate` may be untrusted or
/// expired.
public struct TLSCertificate: Sendable, Hashable {
    let handle: X509Handle
    /// The certificate's DER encoding.
    public let derBytes: [UInt8]

    /// Creates a certificate from the first certificate block in PEM text.
    ///
    /// Throws `invalidCertificate` if the text contains no certificate.
    public init(pem: String) throws(TLSError) {
        self = try Self.readAll(SecretBytes(pem), "the text", limit: 1)[0]
    }

    /// Creates a certificate from its DER encoding.
    ///
    /// Throws `invalidCertificate` if `der` is not exactly one certificate.
    public init(der: [UInt8]) throws(TLSError) {
        var consumed = 0
        let x509 = try OpenSSLCall.require(
            "d2i_X509", or: .invalidCertificate, "the data is not a DER-encoded certificate"
        ) {
            der.withUnsafeBufferPointer { bytes in
                var cursor = bytes.baseAddress
                let x509 = d2i_X509(nil, &cursor, bytes.count)
                if let cursor, let start = bytes.baseAddress { consumed = cursor - start }
                return x509
            }
        }
        self.init(owning: x509)
        guard consumed == der.count else {
            throw TLSError(
                .invalidCertificate, "\(der.count - consumed) trailing bytes after the DER certificate", operation: "d2i_X509")
        }
    }

    /// Returns every certificate in PEM text, in order. Other kinds of blocks are skipped, except
    /// `TRUSTED CERTIFICATE` and `PKCS7`, which contain certificates and are an error.
    ///
    /// Throws `invalidCertificate` if the text contains no certificate.
    public static func certificates(pem: String) throws(TLSError) -> [TLSCertificate] {
        try readAll(SecretBytes(pem), "the text")
    }

    /// Returns every certificate in a PEM file, in order, or the certificate in a DER file. Other kinds of
    /// blocks are treated as in `certificates(pem:)`.
    ///
    /// Throws `invalidCertificate` if the file cannot be read or contains no certificate.
    public static func certificates(file path: String) throws(TLSError) -> [TLSCertificate] {
        let contents = try SecretBytes.contents(ofFile: path, or: .invalidCertificate)
        let source = "the file \"\(path.printable)\""
        return contents.isDER ? [try TLSCertificate(contents, source)] : try readAll(contents, source)
    }

    /// The start of the certificate's validity period, or `.distantFuture` if it cannot be read: see
    /// `hasReadableDates`.
    public var notBefore: Date { Self.date(X509_get0_notBefore(handle.x509)) ?? .distantFuture }

    /// The end of the certificate's validity period, or `.distantPast` if it cannot be read: see
    /// `hasReadableDates`.
    public var notAfter: Date { Self.date(X509_get0_notAfter(handle.x509)) ?? .distantPast }

    /// Whether both dates of the validity period can be read. OpenSSL decodes a certificate with an
    /// unreadable date, but never trusts it.
    public var hasReadableDates: Bool {
        Self.date(X509_get0_notBefore(handle.x509)) != nil && Self.date(X509_get0_notAfter(handle.x509)) != nil
    }

    /// The SHA-256 digest of `derBytes`, 32 bytes.
    public var sha256Fingerprint: [UInt8] {
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var length: UInt32 = 0
        guard X509_digest(handle.x509, EVP_sha256(), &digest, &length) == 1 else { return [] }
        return Array(digest.prefix(Int(length)))
    }

    /// The SHA-256 digest of the public key and its algorithm (SubjectPublicKeyInfo), 32 bytes.
    ///
    /// Use it as a pin in `TLSCertificateRules.pins` (RFC 7469, section 2.4). The digest stays the same if a
    /// certificate is renewed with the same key.
    public var publicKeySHA256: [UInt8] { Self.publicKeySHA256(of: handle.x509) }

    /// The certificate in PEM form, including the BEGIN and END lines.
    public var pem: String {
        MemoryBIO.text { bio in PEM_write_bio_X509(bio, handle.x509) } ?? ""
    }

    /// Returns whether the DER encodings are equal.
    public static func == (left: TLSCertificate, right: TLSCertificate) -> Bool {
        left.derBytes == right.derBytes
    }

    /// Hashes the DER encoding.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(derBytes)
    }
}

extension TLSCertificate {
    init(owning x509: OpaquePointer) {
        handle = X509Handle(owning: x509)
        derBytes = Self.encode(x509)
    }

    /// Adds a reference to `x509`. `X509_up_ref` can only fail for an object without references.
    init(sharing x509: OpaquePointer) {
        X509_up_ref(x509)
        self.init(owning: x509)
    }

    /// Returns the certificates in a `STACK_OF(X509)`, or an empty array for `nil`.
    static func certificates(sharing stack: OpaquePointer?) -> [TLSCertificate] {
        (0..<COpenSSL_sk_X509_num(stack)).compactMap { index in
            COpenSSL_sk_X509_value(stack, index).map { TLSCertificate(sharing: $0) }
        }
    }

    /// Returns the digest of the SubjectPublicKeyInfo exactly as encoded in the certificate.
    static func publicKeySHA256(of certificate: OpaquePointer) -> [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &encoding)
        guard length > 0, let encoding else { return [] }
        defer { COpenSSL_free(encoding) }
        var digest = [UInt8](repeating: 0, count: 32)
        SHA256(encoding, Int(length), &digest)
        return digest
    }

    /// OpenSSL's chain contains the peer's own certificate on a client, but not on a server.
    static func certificates(ofPeerOn ssl: OpaquePointer, isServer: Bool) -> [TLSCertificate] {
        let chain = certificates(sharing: SSL_get_peer_cert_chain(ssl))
        guard isServer, let leaf = SSL_get0_peer_certificate(ssl) else { return chain }
        return [TLSCertificate(sharing: leaf)] + chain
    }

    static func read(
        _ text: SecretBytes, from source: String, limit: Int = .max
    ) throws(TLSError) -> [TLSCertificate] {
        let reader = try PEMReader(text, from: source, or: .invalidCertificate)
        var certificates: [TLSCertificate] = []
        while certificates.count < limit, let x509 = try reader.nextCertificate() {
            certificates.append(TLSCertificate(owning: x509))
        }
        return certificates
    }

    /// Reads PEM text that must contain a certificate.
    private static func readAll(
        _ text: SecretBytes, _ source: String, limit: Int = .max
    ) throws(TLSError) -> [TLSCertificate] {
        let certificates = try read(text, from: source, limit: limit)
        guard certificates.isEmpty else { return certificates }
        throw TLSError(
            .invalidCertificate, "\(source) \(text.complaint(expecting: "PEM-encoded certificates"))",
            operation: "PEM_read_bio_X509")
    }

    /// Reads a DER file.
    init(_ contents: SecretBytes, _ source: String) throws(TLSError) {
        do throws(TLSError) {
            self = try TLSCertificate(der: contents.copy)
        } catch {
            var error = error
            error.message = "\(source) \(contents.kind?.description ?? "is not a DER-encoded certificate")"
            throw error
        }
    }

    private static func encode(_ x509: OpaquePointer) -> [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = i2d_X509(x509, &encoding)
        guard length > 0, let encoding else { return [] }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }

    /// Returns `nil` if the time cannot be read. (OpenSSL would interpret a null pointer as the current
    /// time.)
    private static func date(_ time: COpenSSL_Time?) -> Date? {
        var days: Int32 = 0
        var seconds: Int32 = 0
        guard let time, let epoch = ASN1_TIME_set(nil, 0) else { return nil }
        defer { ASN1_STRING_free(epoch) }
        let isRead = OpenSSLCall.attempt { ASN1_TIME_diff(&days, &seconds, epoch, time) == 1 ? true : nil }.value
        guard isRead == true else { return nil }
        return Date(timeIntervalSince1970: Double(days) * 86_400 + Double(seconds))
    }
}

final class X509Handle: @unchecked Sendable {
    // Unchecked: the certificate never changes after it is decoded, and OpenSSL locks the fields that it
    // caches.
    let x509: OpaquePointer

    init(owning x509: OpaquePointer) {
        self.x509 = x509
    }

    deinit { X509_free(x509) }
}

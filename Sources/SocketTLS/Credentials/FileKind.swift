internal import COpenSSL

/// The kind of a file that does not contain what was expected, for the error about it.
enum FileKind: Equatable {
    case certificate
    case request
    case revocationList
    case privateKey
    case pkcs7
    case pkcs12
    case javaKeyStore
    /// A DER file that ends early, with the size that its first bytes announce.
    case truncated(Int)

    /// The end of a sentence that begins with the name of the file.
    var description: String {
        switch self {
        case .certificate: "is a certificate"
        case .request: "is a certificate signing request, for which an authority must issue the certificate"
        case .revocationList: "is a certificate revocation list"
        case .privateKey: "is a private key"
        case .pkcs7: "is in PKCS#7 format: convert it with `openssl pkcs7 -print_certs`"
        case .pkcs12: "is in PKCS#12 format: use TLSIdentity(pkcs12File:passphrase:)"
        case .javaKeyStore: "is a Java key store: convert it with `keytool -importkeystore -deststoretype pkcs12`"
        case .truncated(let count): "is truncated: its first bytes announce \(count) bytes"
        }
    }

    /// Returns `nil` for an unknown kind, including PEM.
    init?(of bytes: UnsafeRawBufferPointer) {
        // The numbers at the start of a JKS or JCEKS file.
        if bytes.starts(with: [0xFE, 0xED, 0xFE, 0xED]) || bytes.starts(with: [0xCE, 0xCE, 0xCE, 0xCE]) {
            self = .javaKeyStore
            return
        }
        guard let size = Self.announcedSize(of: bytes) else { return nil }
        guard size <= bytes.count else {
            self = .truncated(size)
            return
        }
        let kinds: [(kind: FileKind, isDecodable: (inout UnsafePointer<UInt8>?) -> Bool)] = [
            (.certificate, { Self.decode(d2i_X509(nil, &$0, bytes.count), X509_free) }),
            (.pkcs12, { Self.decode(d2i_PKCS12(nil, &$0, bytes.count), PKCS12_free) }),
            (.pkcs7, { Self.decode(d2i_PKCS7(nil, &$0, bytes.count), PKCS7_free) }),
            (.request, { Self.decode(d2i_X509_REQ(nil, &$0, bytes.count), X509_REQ_free) }),
            (.revocationList, { Self.decode(d2i_X509_CRL(nil, &$0, bytes.count), X509_CRL_free) }),
            (.privateKey, { Self.decode(d2i_AutoPrivateKey(nil, &$0, bytes.count), EVP_PKEY_free) }),
            (.privateKey, { Self.decode(d2i_X509_SIG(nil, &$0, bytes.count), X509_SIG_free) }),
        ]
        let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        for (kind, isDecodable) in kinds {
            var cursor: UnsafePointer<UInt8>? = start
            if isDecodable(&cursor) {
                self = kind
                return
            }
        }
        return nil
    }

    private static func decode<Value>(_ value: @autoclosure () -> Value?, _ free: (Value?) -> Void) -> Bool {
        let value = OpenSSLCall.attempt(value).value
        free(value)
        return value != nil
    }

    /// Returns the size of the DER SEQUENCE at the start, including its header, or `nil` if there is none.
    static func announcedSize(of bytes: UnsafeRawBufferPointer) -> Int? {
        guard bytes.count > 2, bytes[0] == 0x30, bytes[1] != 0x80 else { return nil }
        guard bytes[1] > 0x80 else { return 2 + Int(bytes[1]) }
        let digitCount = Int(bytes[1] & 0x7F)
        let digits = bytes.dropFirst(2).prefix(digitCount)
        guard digitCount <= 4, digits.count == digitCount else { return nil }
        return 2 + digitCount + digits.reduce(0) { $0 << 8 | Int($1) }
    }
}

extension SecretBytes {
    var kind: FileKind? { withBytes { FileKind(of: $0) } }

    /// Whether the bytes are a single DER SEQUENCE. Always false for PEM text.
    var isDER: Bool { withBytes { FileKind.announcedSize(of: $0) == $0.count } }

    /// The labels of the PEM blocks (RFC 7468, section 2): at most four, each once.
    private var pemLabels: [String] {
        withBytes { bytes in
            var labels: [String] = []
            for line in bytes.split(whereSeparator: { $0 == 0x0A || $0 == 0x0D }) where line.starts(with: "-----BEGIN ".utf8) {
                let label = line.dropFirst(11).prefix { (0x41...0x5A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x20 }
                guard line.dropFirst(11 + label.count).starts(with: "-----".utf8) else { continue }
                let name = String(decoding: label, as: UTF8.self)
                if !labels.contains(name), labels.count < 4 { labels.append(name) }
            }
            return labels
        }
    }

    /// What the file contains instead of `expected`, as the end of a sentence that begins with its name.
    func complaint(expecting expected: String) -> String {
        if let kind { return kind.description }
        let labels = pemLabels.map { "\"\($0)\"" }.joined(separator: ", ")
        return "contains no \(expected)" + (labels.isEmpty ? "" : ": its PEM blocks are \(labels)")
    }
}

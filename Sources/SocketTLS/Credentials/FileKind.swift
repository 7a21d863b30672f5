internal import COpenSSL

/// The kind of a file, for errors about files of the wrong kind.
enum FileKind: Equatable {
    case certificate
    case request
    case revocationList
    case privateKey
    case pkcs7
    case pkcs12
    case javaKeyStore
    /// A DER file that is shorter than the length in its header.
    case truncated(Int)
    /// A DER file that is longer than the length in its header.
    case continued(Int)

    /// The predicate of a sentence about the file.
    var description: String {
        switch self {
        case .certificate: "is a certificate"
        case .request: "is a certificate signing request: have a certificate authority issue the certificate"
        case .revocationList: "is a certificate revocation list"
        case .privateKey: "is a private key"
        case .pkcs7: "is in PKCS#7 format: convert it with `openssl pkcs7 -print_certs`"
        case .pkcs12: "is in PKCS#12 format: use TLSIdentity(pkcs12File:passphrase:)"
        case .javaKeyStore: "is a Java key store: convert it with `keytool -importkeystore -deststoretype pkcs12`"
        case .truncated(let count): "is truncated: its header specifies a length of \(count) bytes"
        case .continued(let count): "contains further bytes after its DER structure of \(count) bytes"
        }
    }

    /// Returns `nil` for an unknown kind, including PEM.
    init?(of bytes: UnsafeRawBufferPointer) {
        if Self.javaNumbers.contains(where: { bytes.starts(with: $0) }) {
            self = .javaKeyStore
            return
        }
        if let size = Self.announcedSize(of: bytes), size > bytes.count, Self.beginsStructure(bytes) {
            self = .truncated(size)
            return
        }
        guard let kind = Self.decoded(bytes) else { return nil }
        let size = Self.announcedSize(of: bytes) ?? bytes.count
        self = size < bytes.count ? .continued(size) : kind
    }

    /// Whether the first element is a SEQUENCE or an INTEGER, as in all of these formats. In text, the
    /// first byte of DER is the digit "0".
    private static func beginsStructure(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let headerLength = bytes[1] > 0x80 ? 2 + Int(bytes[1] & 0x7F) : 2
        return bytes.count > headerLength && [0x30, 0x02].contains(bytes[headerLength])
    }

    /// The bytes at the start of a JKS or JCEKS file.
    private static let javaNumbers: [[UInt8]] = [[0xFE, 0xED, 0xFE, 0xED], [0xCE, 0xCE, 0xCE, 0xCE]]

    private static func decoded(_ bytes: UnsafeRawBufferPointer) -> FileKind? {
        let count = bytes.count
        if isDecodable(bytes, { d2i_X509(nil, &$0, count) }, X509_free) { return .certificate }
        if isDecodable(bytes, { d2i_PKCS12(nil, &$0, count) }, PKCS12_free) { return .pkcs12 }
        if isDecodable(bytes, { d2i_PKCS7(nil, &$0, count) }, PKCS7_free) { return .pkcs7 }
        if isDecodable(bytes, { d2i_X509_REQ(nil, &$0, count) }, X509_REQ_free) { return .request }
        if isDecodable(bytes, { d2i_X509_CRL(nil, &$0, count) }, X509_CRL_free) { return .revocationList }
        let isKey = isDecodable(bytes, { d2i_AutoPrivateKey(nil, &$0, count) }, EVP_PKEY_free)
        return isKey || isDecodable(bytes, { d2i_X509_SIG(nil, &$0, count) }, X509_SIG_free) ? .privateKey : nil
    }

    private static func isDecodable<Value>(
        _ bytes: UnsafeRawBufferPointer, _ read: (inout UnsafePointer<UInt8>?) -> Value?, _ free: (Value?) -> Void
    ) -> Bool {
        var cursor: UnsafePointer<UInt8>? = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        let value = OpenSSLCall.attempt { read(&cursor) }.value
        free(value)
        return value != nil
    }

    /// Returns the size of the DER SEQUENCE at the start, including its header, or `nil` for other bytes.
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
            for line in bytes.split(whereSeparator: { $0 == 0x0A || $0 == 0x0D }) {
                guard let label = Self.pemLabel(in: line), !labels.contains(label), labels.count < 4 else { continue }
                labels.append(label)
            }
            return labels
        }
    }

    private static func pemLabel(in line: UnsafeRawBufferPointer.SubSequence) -> String? {
        let start = "-----BEGIN ".utf8
        guard line.starts(with: start) else { return nil }
        let rest = line.dropFirst(start.count)
        let label = rest.prefix { (0x41...0x5A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x20 }
        return rest.dropFirst(label.count).starts(with: "-----".utf8) ? String(decoding: label, as: UTF8.self) : nil
    }

    /// The predicate of a sentence about the file, which should contain `expected`.
    func complaint(expecting expected: String) -> String {
        if let kind { return kind.description }
        let labels = pemLabels.map { "\"\($0)\"" }.joined(separator: ", ")
        return "contains no \(expected)" + (labels.isEmpty ? "" : " (PEM blocks found: \(labels))")
    }
}

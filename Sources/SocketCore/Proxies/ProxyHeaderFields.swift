/// The fields (TLVs) that follow the addresses in version 2 (section 2.2). They refer to the header's
/// memory.
struct ProxyHeaderFields {
    enum FieldType: UInt8 {
        case applicationProtocol = 0x01
        case authority = 0x02
        case checksum = 0x03
        case padding = 0x04
        case uniqueID = 0x05
        case clientTLS = 0x20
        case networkNamespace = 0x30
    }

    /// Types of the fields nested in `clientTLS`.
    enum TLSFieldType: UInt8 {
        case version = 0x21
        case commonName = 0x22
        case cipherSuite = 0x23
        case signatureAlgorithm = 0x24
        case keyAlgorithm = 0x25
    }

    static let checksumCount = 4
    /// The size of a field's type and length, which precede the value.
    static let headCount = 3

    private let block: UnsafeRawBufferPointer
    private let fields: [(type: UInt8, value: Range<Int>)]

    /// - Parameter start: The position of the first field. The last field must extend to the end of the
    ///   block.
    /// - Throws: `.malformed` if a field does not fit.
    init(in block: UnsafeRawBufferPointer, from start: Int) throws(ProxyHeaderError) {
        var fields: [(type: UInt8, value: Range<Int>)] = []
        var position = start
        while position < block.count {
            let value = position + Self.headCount
            guard value <= block.count else {
                throw .malformed("a field in the peer's PROXY header is shorter than 3 bytes")
            }
            let end = value + Int(block[position + 1]) << 8 + Int(block[position + 2])
            guard end <= block.count else {
                throw .malformed("field \(block[position]) extends past the end of the peer's PROXY header")
            }
            fields.append((block[position], value..<end))
            position = end
        }
        self.block = block
        self.fields = fields
    }

    /// - Throws: `.wrongChecksum`, or `.malformed` if the checksum has the wrong size.
    func checkChecksum() throws(ProxyHeaderError) {
        for field in fields where field.type == FieldType.checksum.rawValue {
            guard field.value.count == Self.checksumCount else {
                throw .malformed("the checksum in the peer's PROXY header has \(field.value.count) bytes instead of 4")
            }
            var bytes = Array(block)
            bytes.replaceSubrange(field.value, with: repeatElement(0, count: Self.checksumCount))
            guard block[field.value].elementsEqual(CRC32C.checksum(of: bytes).bigEndianBytes) else {
                throw ProxyHeaderError(.wrongChecksum, "the checksum of the peer's PROXY header is wrong")
            }
        }
    }

    /// - Throws: `.malformed`.
    func fill(_ header: inout ProxyHeader) throws(ProxyHeaderError) {
        var seen: Set<FieldType> = []
        for field in fields {
            let bytes = Array(block[field.value])
            guard let type = FieldType(rawValue: field.type) else {
                header.otherFields.append(.init(type: field.type, value: bytes))
                continue
            }
            guard type == .padding || seen.insert(type).inserted else { throw Self.repeated(field.type) }
            switch type {
            case .applicationProtocol: header.applicationProtocol = bytes
            case .authority: header.authority = try Self.text(bytes, field.type)
            case .checksum: header.hasChecksum = true
            case .padding: continue
            case .uniqueID: header.uniqueID = try Self.uniqueID(bytes)
            case .clientTLS: header.clientTLS = try Self.clientTLS(in: UnsafeRawBufferPointer(rebasing: block[field.value]))
            case .networkNamespace: header.networkNamespace = try Self.text(bytes, field.type)
            }
        }
    }

    private static func uniqueID(_ bytes: [UInt8]) throws(ProxyHeaderError) -> [UInt8] {
        guard bytes.count <= ProxyHeader.maximumUniqueIDBytes else {
            throw .malformed(
                "the unique ID in the peer's PROXY header has \(bytes.count) bytes, but at most 128 are allowed")
        }
        return bytes
    }

    private static func clientTLS(in value: UnsafeRawBufferPointer) throws(ProxyHeaderError) -> ProxyHeader.ClientTLS {
        guard value.count >= 5 else { throw .malformed("the TLS field in the peer's PROXY header is shorter than 5 bytes") }
        let result = value[1..<5].reduce(0) { $0 << 8 | UInt32($1) }
        var tls = ProxyHeader.ClientTLS(flags: .init(rawValue: value[0]), verifyResult: result)
        var seen: Set<TLSFieldType> = []
        let inner = try ProxyHeaderFields(in: value, from: 5)
        for field in inner.fields {
            let bytes = Array(value[field.value])
            guard let type = TLSFieldType(rawValue: field.type) else {
                tls.otherFields.append(.init(type: field.type, value: bytes))
                continue
            }
            guard seen.insert(type).inserted else { throw repeated(field.type) }
            tls[keyPath: type.property] = try text(bytes, field.type)
        }
        return tls
    }

    private static func repeated(_ type: UInt8) -> ProxyHeaderError {
        .malformed("the peer's PROXY header contains field \(type) more than once")
    }

    /// Decodes UTF-8 without control characters. Valid names do not contain control characters.
    private static func text(_ bytes: [UInt8], _ type: UInt8) throws(ProxyHeaderError) -> String {
        guard let text = String(validating: bytes, as: UTF8.self), isPlain(text) else {
            throw .malformed("field \(type) in the peer's PROXY header is not plain text: \(ProxyFailure.quote(bytes))")
        }
        return text
    }

    static func isPlain(_ text: String) -> Bool {
        !text.unicodeScalars.contains { $0.properties.generalCategory == .control }
    }
}

extension ProxyHeaderFields.TLSFieldType: CaseIterable {
    var property: WritableKeyPath<ProxyHeader.ClientTLS, String?> {
        switch self {
        case .version: \.version
        case .commonName: \.commonName
        case .cipherSuite: \.cipherSuite
        case .signatureAlgorithm: \.signatureAlgorithm
        case .keyAlgorithm: \.keyAlgorithm
        }
    }
}

/// CRC-32C, with Castagnoli's polynomial (RFC 4960, appendix B, but not in SCTP's byte order).
enum CRC32C {
    private static let polynomial: UInt32 = 0x82f6_3b78

    private static let table = (0..<256).map { index in
        (0..<8).reduce(UInt32(index)) { rest, _ in rest & 1 == 0 ? rest >> 1 : rest >> 1 ^ polynomial }
    }

    static func checksum(of bytes: [UInt8]) -> UInt32 {
        ~bytes.reduce(~0) { rest, byte in rest >> 8 ^ table[Int(UInt8(truncatingIfNeeded: rest) ^ byte)] }
    }
}

extension FixedWidthInteger {
    var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }
}

/// The bytes sent in one direction, which consist of plaintext lines and TLS records (RFC 8446, section 5.1).
struct Recording {
    let bytes: [UInt8]

    /// Returns the number of bytes up to and including the last line of plaintext.
    func plaintextCount(upTo lastLine: String) -> Int? {
        let needle = Array(lastLine.utf8)
        guard bytes.count >= needle.count else { return nil }
        return (0...(bytes.count - needle.count)).first { Array(bytes[$0..<($0 + needle.count)]) == needle }.map {
            $0 + needle.count
        }
    }

    /// Returns the records after the first `offset` bytes, or nil if anything there is not a complete TLS
    /// record.
    func records(from offset: Int) -> [TLSRecord]? {
        var records: [TLSRecord] = []
        var rest = bytes[offset...]
        while !rest.isEmpty {
            guard let record = TLSRecord(firstOf: rest) else { return nil }
            records.append(record)
            rest = rest.dropFirst(TLSRecord.headerLength + record.payload.count)
        }
        return records
    }

    func contains(_ text: String) -> Bool {
        plaintextCount(upTo: text) != nil
    }
}

/// A TLS record.
struct TLSRecord {
    /// `ContentType` in RFC 8446, section 5.1.
    enum ContentType: UInt8 {
        case changeCipherSpec = 20
        case alert = 21
        case handshake = 22
        case applicationData = 23
    }

    static let headerLength = 5
    /// The largest record that TLS 1.2 allows (RFC 5246, section 6.2.3).
    private static let longestPayload = 16_384 + 2_048

    let type: ContentType
    let payload: ArraySlice<UInt8>

    init?(firstOf bytes: ArraySlice<UInt8>) {
        guard bytes.count >= Self.headerLength else { return nil }
        let header = Array(bytes.prefix(Self.headerLength))
        let length = Int(header[3]) << 8 | Int(header[4])
        guard let type = ContentType(rawValue: header[0]), header[1] == 3, header[2] <= 4, length > 0,
            length <= Self.longestPayload, bytes.count >= Self.headerLength + length
        else { return nil }
        self.type = type
        payload = bytes.dropFirst(Self.headerLength).prefix(length)
    }

    /// Whether the record starts with a ClientHello (RFC 8446, section 4).
    var isClientHello: Bool {
        type == .handshake && payload.first == 1
    }
}

internal import COpenSSL

/// Collects one handshake message of the peer, which arrives unencrypted, from its fragments (RFC 6347,
/// section 4.2.3).
struct MessageFragments {
    private let type: UInt8
    private let limit: Int
    private var parts: [(offset: Int, bytes: [UInt8])] = []
    private var message: (number: Int, length: Int)?
    private var sequence: UInt64 = 0
    private var byteCount = 0
    /// The datagrams that contain the fragments.
    private(set) var datagrams: [[UInt8]] = []

    private static let byteLimit = 64 * 1024

    /// - Parameter limit: The maximum length of the message.
    init(of type: UInt8, limit: Int) {
        (self.type, self.limit) = (type, limit)
    }

    /// Whether a datagram contains a fragment of the message.
    func isPart(_ datagram: UnsafeRawBufferPointer) -> Bool {
        var copy = self
        return copy.add(datagram) != nil || copy.datagrams.count > datagrams.count
    }

    /// Returns the message with a four-byte header, as in TLS, once it is complete.
    mutating func add(_ datagram: UnsafeRawBufferPointer) -> [UInt8]? {
        guard byteCount + datagram.count <= Self.byteLimit else { return nil }
        let known = parts.count
        var rest = datagram
        while let header = RecordHeader(rest) {
            let record = UnsafeRawBufferPointer(rebasing: rest[RecordHeader.size..<header.recordSize])
            rest = UnsafeRawBufferPointer(rebasing: rest[header.recordSize...])
            guard header.type == RecordHeader.handshake, header.epoch == 0 else { continue }
            sequence = header.sequence
            readParts(record)
        }
        guard parts.count > known else { return nil }
        byteCount += datagram.count
        datagrams.append(Array(datagram))
        return whole
    }

    private mutating func readParts(_ record: UnsafeRawBufferPointer) {
        var reader = FieldReader(record[...])
        while let type = reader.number(of: 1), let length = reader.number(of: 3), let number = reader.number(of: 2),
            let offset = reader.number(of: 3), let part = reader.field(lengthOf: 3)
        {
            let first = message ?? (number, length)
            guard type == Int(self.type), first == (number, length), length <= limit, offset + part.count <= length
            else { continue }
            message = first
            parts.append((offset, Array(part)))
        }
    }

    private var whole: [UInt8]? {
        guard let length = message?.length else { return nil }
        var bytes: [UInt8] = []
        for part in parts.sorted(by: { $0.offset < $1.offset }) {
            guard part.offset <= bytes.count else { return nil }
            bytes += part.bytes.dropFirst(bytes.count - part.offset)
        }
        guard bytes.count == length else { return nil }
        return [type, UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF)] + bytes
    }

    /// Returns an unencrypted alert. Its record has the number of the client's record, as the first record of
    /// a handshake would have.
    func alert(_ alert: TLSAlert) -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0.suffix(6)) }
        return [UInt8(SSL3_RT_ALERT), 0xFE, 0xFD, 0, 0] + number + [0, 2, UInt8(SSL3_AL_FATAL), alert.rawValue]
    }
}

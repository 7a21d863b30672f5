internal import COpenSSL

/// Reassembles one unencrypted handshake message from its fragments (RFC 6347, section 4.2.3).
///
/// The peer controls the number, order and size of the fragments, so a fragment without new bytes is ignored,
/// and the number of useful fragments is limited.
struct MessageFragments {
    private let type: UInt8
    private let limit: Int
    private var message: (number: Int, length: Int)?
    private var bytes: [UInt8] = []
    /// The parts of `bytes` that have arrived, in order, with gaps between them.
    private var known: [Range<Int>] = []
    private var partCount = 0
    private var sequence: UInt64 = 0
    private var byteCount = 0
    /// The datagrams that contain the fragments.
    private(set) var datagrams: [[UInt8]] = []

    /// Enough for the longest message in 256-byte datagrams.
    private static let partLimit = 256
    private static let byteLimit = 64 * 1024

    /// - Parameter limit: The maximum length of the message.
    init(of type: UInt8, limit: Int) {
        (self.type, self.limit) = (type, limit)
    }

    /// Whether a datagram contains a fragment of the message, or of another message of this type.
    func isPart(_ datagram: UnsafeRawBufferPointer) -> Bool {
        var isPart = false
        forEachPart(of: datagram) { _, _, _, _ in isPart = true }
        return isPart
    }

    /// Returns the message with a four-byte header, as in TLS, once it is complete. A datagram without new
    /// bytes is not kept.
    mutating func add(_ datagram: UnsafeRawBufferPointer) -> [UInt8]? {
        guard byteCount + datagram.count <= Self.byteLimit else { return nil }
        var parts: [(UInt64, (number: Int, length: Int), Int, Slice<UnsafeRawBufferPointer>)] = []
        forEachPart(of: datagram) { parts.append(($0, $1, $2, $3)) }
        let count = partCount
        for (sequence, message, offset, part) in parts { add(sequence, message, offset, part) }
        guard partCount > count else { return nil }
        byteCount += datagram.count
        datagrams.append(Array(datagram))
        guard let length = message?.length, known == [0..<length] else { return nil }
        return [type, UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF)] + bytes
    }

    private mutating func add(
        _ sequence: UInt64, _ message: (number: Int, length: Int), _ offset: Int, _ part: Slice<UnsafeRawBufferPointer>
    ) {
        let first = self.message ?? message
        let range = offset..<offset + part.count
        guard first == message, message.length <= limit, range.upperBound <= message.length, partCount < Self.partLimit,
            !known.contains(where: { $0.lowerBound <= range.lowerBound && range.upperBound <= $0.upperBound })
        else { return }
        if self.message == nil { bytes = [UInt8](repeating: 0, count: message.length) }
        (self.message, self.sequence) = (message, sequence)
        partCount += 1
        bytes.replaceSubrange(range, with: part)
        note(range)
    }

    /// Joins a new range and the known ranges that it touches.
    private mutating func note(_ range: Range<Int>) {
        let touched = known.filter { $0.lowerBound <= range.upperBound && range.lowerBound <= $0.upperBound }
        known.removeAll { touched.contains($0) }
        let start = min(range.lowerBound, touched.first?.lowerBound ?? .max)
        let end = max(range.upperBound, touched.last?.upperBound ?? 0)
        known.insert(start..<end, at: known.firstIndex { $0.lowerBound > start } ?? known.endIndex)
    }

    /// Calls `body` with the record number, the message, the offset and the bytes of each fragment that is
    /// not empty.
    private func forEachPart(
        of datagram: UnsafeRawBufferPointer,
        _ body: (UInt64, (number: Int, length: Int), Int, Slice<UnsafeRawBufferPointer>) -> Void
    ) {
        var rest = datagram
        while let header = RecordHeader(rest) {
            let record = UnsafeRawBufferPointer(rebasing: rest[RecordHeader.size..<header.recordSize])
            rest = UnsafeRawBufferPointer(rebasing: rest[header.recordSize...])
            guard header.type == RecordHeader.handshake, header.epoch == 0 else { continue }
            var reader = FieldReader(record)
            while let type = reader.number(of: 1), let length = reader.number(of: 3), let number = reader.number(of: 2),
                let offset = reader.number(of: 3), let part = reader.field(lengthOf: 3)
            {
                if type == Int(self.type), !part.isEmpty { body(header.sequence, (number, length), offset, part) }
            }
        }
    }

    /// Returns an unencrypted alert. Its record has the same sequence number as the client's record, as in
    /// the first record of a handshake.
    func alert(_ alert: TLSAlert) -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0.suffix(6)) }
        return [UInt8(SSL3_RT_ALERT), 0xFE, 0xFD, 0, 0] + number + [0, 2, UInt8(SSL3_AL_FATAL), alert.rawValue]
    }
}

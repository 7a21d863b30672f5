internal import SocketBuffers

/// The records of DTLS (RFC 6347, section 4.1): where each begins and ends in the buffers of an `EngineBIO`,
/// and those that count for nothing.
final class RecordQueues {
    /// The sizes of the records in `EngineBIO.received`.
    var received = Ring<Int>()
    /// The sizes of the datagrams in `EngineBIO.output`.
    var output: [Int] = []
    /// When the first messages are sent again, in microseconds; each time after that it takes twice as long.
    var firstTimeout: UInt32 = 1_000_000
    /// The sequence number for the next record of ours in plaintext.
    private(set) var nextPlainSequence: UInt64 = 0
    /// The records that were not of DTLS, not authentic, or not new.
    private(set) var droppedCount = 0
    /// Records that OpenSSL has read, and whose data it has not returned.
    private var unreturnedCount = 0

    /// The most bytes that wait for OpenSSL; more are dropped, as on the way.
    private static let byteLimit = 64 * 1024

    /// The records of a datagram that OpenSSL may see. Other records are dropped, and so is the rest of a
    /// datagram behind something that is not a record.
    ///
    /// OpenSSL would end a handshake for data in plaintext, or a message of a kind that it does not know.
    /// Anyone can send those with a forged address. Once the connection is established, records in plaintext
    /// are of no use, and the record behind them may be: a peer that has not got our last flight sends its
    /// own again, of which only Finished is encrypted (RFC 6347, section 4.2.4).
    func accept(_ datagram: UnsafeRawBufferPointer, into buffer: PreBuffer, isEstablished: Bool) {
        var rest = datagram[...]
        while !rest.isEmpty {
            guard let header = RecordHeader(rest), header.isOfDTLS else { return droppedCount += 1 }
            let record = UnsafeRawBufferPointer(rebasing: rest.prefix(header.recordSize))
            rest = rest.dropFirst(record.count)
            if header.isUsable(isEstablished: isEstablished), buffer.count + record.count <= Self.byteLimit {
                buffer.append(record)
                received.append(record.count)
            } else {
                droppedCount += 1
            }
        }
    }

    /// OpenSSL reads this record. In a handshake other records than those with data have their use.
    func noteRead(_ record: UnsafeRawBufferPointer, isEstablished: Bool) {
        if isEstablished || record.first == RecordHeader.data { unreturnedCount += 1 }
    }

    /// OpenSSL has returned the data of a record.
    func noteReturned() {
        unreturnedCount = max(0, unreturnedCount - 1)
    }

    /// OpenSSL has nothing more to return: it has dropped what it has not returned.
    func noteDry() {
        droppedCount += unreturnedCount
        unreturnedCount = 0
    }

    /// OpenSSL sends a datagram.
    func noteWritten(_ datagram: UnsafeRawBufferPointer) {
        output.append(datagram.count)
        var rest = datagram[...]
        while let header = RecordHeader(rest), header.epoch == 0 {
            nextPlainSequence = header.sequence + 1
            rest = rest.dropFirst(header.recordSize)
        }
    }
}

/// The beginning of a record of DTLS.
struct RecordHeader {
    let type: UInt8
    let version: UInt16
    let epoch: UInt16
    let sequence: UInt64
    let length: Int

    static let size = 13
    static let handshake: UInt8 = 22
    static let data: UInt8 = 23
    /// ChangeCipherSpec, alerts, messages of the handshake and data.
    private static let types: ClosedRange<UInt8> = 20...23
    /// DTLS 1.0, with which a handshake begins, and DTLS 1.2.
    private static let versions: Set<UInt16> = [0xFEFF, 0xFEFD]
    /// The most that an encrypted record has (RFC 5246, 6.2.3).
    private static let lengthLimit = 16 * 1024 + 2048

    /// Nil when the record is not whole.
    init?(_ bytes: Slice<UnsafeRawBufferPointer>) {
        var reader = FieldReader(bytes)
        guard let type = reader.number(of: 1), let version = reader.number(of: 2), let epoch = reader.number(of: 2),
            let sequence = reader.number(of: 6), let length = reader.number(of: 2), reader.rest.count >= length
        else { return nil }
        self.type = UInt8(type)
        self.version = UInt16(version)
        self.epoch = UInt16(epoch)
        self.sequence = UInt64(sequence)
        self.length = length
    }

    var recordSize: Int { Self.size + length }

    var isOfDTLS: Bool {
        Self.types.contains(type) && Self.versions.contains(version) && (1...Self.lengthLimit).contains(length)
    }

    /// Without renegotiation there are two epochs, and data comes in the second.
    func isUsable(isEstablished: Bool) -> Bool {
        isOfDTLS && (epoch == 1 || (epoch == 0 && !isEstablished && type != Self.data))
    }
}

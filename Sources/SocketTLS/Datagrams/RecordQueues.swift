internal import COpenSSL
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
    /// The records that OpenSSL was given, or will be.
    private(set) var acceptedCount = 0
    /// Records that OpenSSL has read, and whose data it has not returned.
    private var unreturnedCount = 0

    /// The fewest bytes of an encrypted record. OpenSSL ends the connection at one that has no room for what
    /// its cipher adds, which anyone can send with a forged address.
    var leastLength = RecordQueues.leastLength(with: nil)
    /// The peer has changed to its keys.
    private var hasReadCipherChange = false
    /// Records that OpenSSL may have put aside since.
    private var asideCount = 0

    /// In a handshake OpenSSL puts up to a hundred records aside that come before their keys, and as many
    /// with data, and keeps a buffer of 17 KB for each.
    private static let asideLimit = 16
    /// The most bytes that wait for OpenSSL; more are dropped, as on the way.
    private static let byteLimit = 64 * 1024

    /// The bytes that a cipher adds: an explicit nonce and a tag (RFC 5288; RFC 6655; RFC 7905), or at least a
    /// code of up to 48 bytes. The most of them for a cipher that is not known yet.
    static func leastLength(with cipher: OpaquePointer?) -> Int {
        guard let cipher, SSL_CIPHER_is_aead(cipher) == 1 else { return 48 }
        let name = SSL_CIPHER_get_name(cipher).map { String(cString: $0) } ?? ""
        return name.contains("CHACHA20") || name.hasSuffix("CCM8") ? 16 : 24
    }

    /// The records of a datagram that OpenSSL may see. The rest of a datagram behind something else is
    /// dropped.
    ///
    /// OpenSSL would end a handshake for data in plaintext, or a message of a kind that it does not know.
    /// Anyone can send those with a forged address.
    func accept(_ datagram: UnsafeRawBufferPointer, into buffer: PreBuffer, isEstablished: Bool) {
        var rest = datagram[...]
        while !rest.isEmpty {
            guard let header = RecordHeader(rest), header.isUsable(isEstablished: isEstablished),
                header.epoch == 0 || header.length >= leastLength, buffer.count + header.recordSize <= Self.byteLimit
            else { return noteDropped() }
            acceptedCount += 1
            buffer.append(UnsafeRawBufferPointer(rebasing: rest.prefix(header.recordSize)))
            received.append(header.recordSize)
            rest = rest.dropFirst(header.recordSize)
        }
    }

    /// A datagram, or the rest of one, counts for nothing.
    func noteDropped() {
        droppedCount += 1
    }

    /// Whether OpenSSL may read this record. One that it would put aside in vain is dropped and counted.
    func admits(_ record: UnsafeRawBufferPointer, isEstablished: Bool) -> Bool {
        if isEstablished { return true }
        let isOfSecondEpoch = record[4] == 1
        if !isOfSecondEpoch, record[0] == RecordHeader.cipherChange { (hasReadCipherChange, asideCount) = (true, 0) }
        guard isOfSecondEpoch, !hasReadCipherChange || record[0] == RecordHeader.data else { return true }
        guard asideCount < Self.asideLimit else {
            noteDropped()
            return false
        }
        asideCount += 1
        return true
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
    static let cipherChange: UInt8 = 20
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

    /// Without renegotiation there are two epochs, and data comes in the second.
    func isUsable(isEstablished: Bool) -> Bool {
        guard Self.types.contains(type), Self.versions.contains(version), (1...Self.lengthLimit).contains(length) else {
            return false
        }
        return epoch == 1 || (epoch == 0 && !isEstablished && type != Self.data)
    }
}

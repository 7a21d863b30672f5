internal import COpenSSL
internal import SocketBuffers

/// The records of DTLS (RFC 6347, section 4.1): where each begins and ends in the buffers of an `EngineBIO`,
/// and those that count for nothing.
final class RecordQueues {
    /// The sizes of the records in `EngineBIO.received`.
    @exclusivity(unchecked) var received = Ring<Int>()
    /// The sizes of the datagrams in `EngineBIO.output`.
    @exclusivity(unchecked) var output: [Int] = []
    /// When the first messages are sent again, in microseconds; each time after that it takes twice as long.
    var firstTimeout: UInt32 = 1_000_000
    /// The number that a server's first record must have; nil once OpenSSL has written that record.
    private var firstSequence: UInt64?
    /// The amount to add to the numbers of OpenSSL's plaintext records.
    @exclusivity(unchecked) private var numberShift: UInt64 = 0
    /// The sequence number for the next record of ours in plaintext.
    @exclusivity(unchecked) private(set) var nextPlainSequence: UInt64 = 0
    /// The records that were not of DTLS, not authentic, or not new.
    @exclusivity(unchecked) private(set) var droppedCount = 0
    /// The records that OpenSSL was given, or will be.
    @exclusivity(unchecked) private(set) var acceptedCount = 0
    /// Records that OpenSSL has read, and whose data it has not returned.
    @exclusivity(unchecked) private var unreturnedCount = 0

    /// The fewest bytes of an encrypted record. OpenSSL ends the connection at one that has no room for what
    /// its cipher adds, which anyone can send with a forged address.
    @exclusivity(unchecked) var leastLength = RecordQueues.leastLength(with: nil)
    /// The peer has changed to its keys.
    @exclusivity(unchecked) private var hasReadCipherChange = false
    /// Records that OpenSSL may have put aside since.
    @exclusivity(unchecked) private var asideCount = 0

    /// Nil once the connection is established.
    var fragments: HandshakeFragments?

    /// In a handshake OpenSSL puts up to a hundred records aside that come before their keys, and as many
    /// with data, and keeps a buffer of 17 KB for each.
    private static let asideLimit = 16
    /// The most bytes that wait for OpenSSL; more are dropped, as on the way.
    private static let byteLimit = 64 * 1024

    /// The bytes that a cipher with an AEAD adds: a tag, and with some an explicit nonce (RFC 5288; RFC 6655;
    /// RFC 7905). For a cipher that is not known yet so many that none of them is too long.
    static func leastLength(with cipher: OpaquePointer?) -> Int {
        guard let cipher else { return 24 }
        let name = SSL_CIPHER_get_name(cipher).map { String(cString: $0) } ?? ""
        return name.contains("CHACHA20") || name.hasSuffix("CCM8") ? 16 : 24
    }

    /// The records of a datagram that OpenSSL may see. Other records are dropped, and so is the rest of a
    /// datagram behind something that is not a record.
    ///
    /// OpenSSL would end a handshake for data in plaintext, or a message of a kind that it does not know.
    /// Anyone can send those with a forged address. Once the connection is established, records in plaintext
    /// are of no use, and the record behind them may be: a peer that has not got our last flight sends its
    /// own again, of which only Finished is encrypted (RFC 6347, section 4.2.4).
    func accept(_ datagram: UnsafeRawBufferPointer, into buffer: PreBuffer, isEstablished: Bool) {
        var rest = datagram
        while !rest.isEmpty {
            guard let header = RecordHeader(rest), header.isOfDTLS else { return noteDropped() }
            let record = UnsafeRawBufferPointer(rebasing: rest[..<header.recordSize])
            rest = UnsafeRawBufferPointer(rebasing: rest[record.count...])
            let isLongEnough = header.epoch == 0 || header.length >= leastLength
            if isLongEnough, header.isUsable(isEstablished: isEstablished), buffer.count + record.count <= Self.byteLimit {
                acceptedCount += 1
                buffer.append(record)
                received.append(record.count)
            } else {
                noteDropped()
            }
        }
    }

    /// A datagram, or the rest of one, counts for nothing.
    func noteDropped() {
        droppedCount += 1
    }

    /// Whether OpenSSL may read this record. One that it would put aside in vain, or that would take too much
    /// memory, is dropped and counted.
    func admits(_ record: UnsafeRawBufferPointer, isEstablished: Bool) -> Bool {
        if isEstablished { return true }
        let isOfSecondEpoch = record[4] == 1
        if !isOfSecondEpoch, record[0] == RecordHeader.handshake,
            fragments?.admits(record.dropFirst(RecordHeader.size)) == false
        {
            noteDropped()
            return false
        }
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

    /// OpenSSL may have something to return: a record waits for it, or one that it has read is not returned.
    var mayHaveMessages: Bool { !received.isEmpty || unreturnedCount > 0 }

    /// OpenSSL has nothing more to return: it has dropped what it has not returned.
    func noteDry() {
        droppedCount += unreturnedCount
        unreturnedCount = 0
    }

    // MARK: - Numbers of plaintext records

    /// Sets the number of a server's first record. It is the number of the ClientHello with the cookie, which
    /// is higher than the numbers of the requests for cookies (RFC 6347, section 4.2.1). A client drops a
    /// record with a number that it has already seen.
    func beginNumbering(at sequence: UInt64) {
        (firstSequence, nextPlainSequence) = (sequence, sequence)
    }

    /// Corrects the record numbers in a datagram from OpenSSL; nil if they are right. OpenSSL 3.2 to 4.0
    /// number a server's first record 1, whatever the number of the ClientHello (openssl #32063).
    func renumbered(_ datagram: UnsafeRawBufferPointer) -> [UInt8]? {
        guard let header = RecordHeader(datagram), header.epoch == 0 else { return nil }
        if let firstSequence {
            numberShift = firstSequence &- header.sequence
            self.firstSequence = nil
        }
        guard numberShift != 0 else { return nil }
        var (copy, start) = (Array(datagram), 0)
        while let header = RecordHeader(datagram.dropFirst(start)) {
            if header.epoch == 0 {
                let number = withUnsafeBytes(of: (header.sequence &+ numberShift).bigEndian) { Array($0.suffix(6)) }
                copy.replaceSubrange(start + RecordHeader.sequencePlace..<start + RecordHeader.sequencePlace + 6, with: number)
            }
            start += header.recordSize
        }
        return copy
    }

    /// OpenSSL sends a datagram.
    func noteWritten(_ datagram: UnsafeRawBufferPointer) {
        output.append(datagram.count)
        var rest = datagram
        while let header = RecordHeader(rest), header.epoch == 0 {
            nextPlainSequence = header.sequence + 1
            rest = UnsafeRawBufferPointer(rebasing: rest[header.recordSize...])
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
    /// The offset of the number, after the type, the version and the epoch.
    static let sequencePlace = 5
    static let cipherChange: UInt8 = 20
    static let handshake: UInt8 = 22
    static let data: UInt8 = 23
    /// ChangeCipherSpec, alerts, messages of the handshake and data.
    private static var types: ClosedRange<UInt8> { 20...23 }
    // DTLS 1.0, with which a handshake begins, and DTLS 1.2.
    private static var dtls10: UInt16 { 0xFEFF }
    private static var dtls12: UInt16 { 0xFEFD }
    /// The most that an encrypted record has (RFC 5246, 6.2.3).
    private static let lengthLimit = 16 * 1024 + 2048

    /// Nil when the record is not whole.
    init?(_ bytes: Slice<UnsafeRawBufferPointer>) {
        self.init(UnsafeRawBufferPointer(rebasing: bytes))
    }

    /// Two loads, not a `FieldReader`: each record in both directions comes here.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.size else { return nil }
        type = bytes[0]
        version = UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt16.self))
        let number = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 3, as: UInt64.self))
        epoch = UInt16(truncatingIfNeeded: number >> 48)
        sequence = number & 0xFFFF_FFFF_FFFF
        length = Int(UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: 11, as: UInt16.self)))
        guard bytes.count - Self.size >= length else { return nil }
    }

    var recordSize: Int { Self.size + length }

    var isOfDTLS: Bool {
        guard version == Self.dtls12 || version == Self.dtls10 else { return false }
        return Self.types.contains(type) && length > 0 && length <= Self.lengthLimit
    }

    /// Without renegotiation there are two epochs, and data comes in the second.
    func isUsable(isEstablished: Bool) -> Bool {
        isOfDTLS && (epoch == 1 || (epoch == 0 && !isEstablished && type != Self.data))
    }
}

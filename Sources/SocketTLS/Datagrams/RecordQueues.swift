internal import COpenSSL
internal import SocketBuffers

/// Tracks the DTLS records (RFC 6347, section 4.1) in the buffers of an `EngineBIO`: where each one starts
/// and ends, and how many were discarded.
final class RecordQueues {
    /// The sizes of the records in `EngineBIO.received`.
    @exclusivity(unchecked) var received = Ring<Int>()
    /// The sizes of the datagrams in `EngineBIO.output`.
    @exclusivity(unchecked) var output: [Int] = []
    /// The first retransmission timeout, in microseconds. It doubles with each retransmission.
    var firstTimeout: UInt32 = 1_000_000
    /// The sequence number that a server's first record must have, or `nil` once OpenSSL has written that
    /// record.
    private var firstSequence: UInt64?
    /// The number to add to the sequence numbers of OpenSSL's plaintext records.
    @exclusivity(unchecked) private var numberShift: UInt64 = 0
    /// The sequence number for our next plaintext record.
    @exclusivity(unchecked) private(set) var nextPlainSequence: UInt64 = 0
    /// The number of records that were not DTLS, not authentic, or duplicates.
    @exclusivity(unchecked) private(set) var droppedCount = 0
    /// The number of records that were passed to OpenSSL or are queued for it.
    @exclusivity(unchecked) private(set) var acceptedCount = 0
    /// The number of records that OpenSSL has read without returning their data yet.
    @exclusivity(unchecked) private var unreturnedCount = 0

    /// The minimum length of an encrypted record. OpenSSL closes the connection when a record is too short
    /// for its cipher's overhead, and such a record can be sent from a forged address.
    @exclusivity(unchecked) var leastLength = RecordQueues.leastLength(with: nil)
    @exclusivity(unchecked) private var hasReadCipherChange = false
    /// How many records OpenSSL may have buffered. The count restarts at zero when the peer's
    /// ChangeCipherSpec arrives.
    @exclusivity(unchecked) private var asideCount = 0

    /// `nil` once the connection is established.
    var fragments: HandshakeFragments?

    /// During a handshake, OpenSSL buffers up to a hundred records that arrive before their keys and as many
    /// data records, with 17 KB for each.
    private static let asideLimit = 16
    /// The maximum number of bytes queued for OpenSSL. Further records are dropped, as the network may do.
    private static let byteLimit = 64 * 1024

    /// Returns the overhead of an AEAD cipher: a tag and, for some ciphers, an explicit nonce (RFC 5288; RFC
    /// 6655; RFC 7905). While the cipher is unknown, the result is the largest overhead, which is safe for
    /// every cipher.
    static func leastLength(with cipher: OpaquePointer?) -> Int {
        guard let cipher else { return 24 }
        let name = SSL_CIPHER_get_name(cipher).map { String(cString: $0) } ?? ""
        return name.contains("CHACHA20") || name.hasSuffix("CCM8") ? 16 : 24
    }

    /// Queues the records of a datagram that OpenSSL may read. Other records are dropped, and so is the rest
    /// of a datagram after bytes that are not a record.
    ///
    /// OpenSSL would abort a handshake because of plaintext data or an unknown message type, both of which
    /// can be sent from a forged address. Once the connection is established, plaintext records are useless,
    /// but an encrypted record after them may be needed: a peer that did not receive our last flight
    /// retransmits its own, in which only Finished is encrypted (RFC 6347, section 4.2.4).
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

    func noteDropped() {
        droppedCount += 1
    }

    /// Whether OpenSSL may read this record. A record that exceeds the limits on buffered memory is dropped
    /// and counted.
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

    /// Notes that OpenSSL reads this record. Until the connection is established only data records are
    /// counted, because the handshake uses all other records.
    func noteRead(_ record: UnsafeRawBufferPointer, isEstablished: Bool) {
        if isEstablished || record.first == RecordHeader.data { unreturnedCount += 1 }
    }

    func noteReturned() {
        unreturnedCount = max(0, unreturnedCount - 1)
    }

    /// Whether OpenSSL may have data to return: a record is queued, or OpenSSL has read a record without
    /// returning its data.
    var mayHaveMessages: Bool { !received.isEmpty || unreturnedCount > 0 }

    /// Notes that OpenSSL has no data left to return. It discarded the records that it read without returning
    /// data.
    func noteDry() {
        droppedCount += unreturnedCount
        unreturnedCount = 0
    }

    // MARK: - Sequence numbers of plaintext records

    /// Sets the sequence number of a server's first record to the number of the ClientHello with the cookie,
    /// which is higher than the numbers of the cookie requests (RFC 6347, section 4.2.1). A client drops
    /// records with a number that it has already seen.
    func beginNumbering(at sequence: UInt64) {
        (firstSequence, nextPlainSequence) = (sequence, sequence)
    }

    /// Returns a copy of OpenSSL's datagram with corrected sequence numbers, or `nil` if they are already
    /// right. OpenSSL 3.2 to 4.0 gives a server's first record the number 1, whatever the number of the
    /// ClientHello (openssl #32063).
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

    func noteWritten(_ datagram: UnsafeRawBufferPointer) {
        output.append(datagram.count)
        var rest = datagram
        while let header = RecordHeader(rest), header.epoch == 0 {
            nextPlainSequence = header.sequence + 1
            rest = UnsafeRawBufferPointer(rebasing: rest[header.recordSize...])
        }
    }
}

struct RecordHeader {
    let type: UInt8
    let version: UInt16
    let epoch: UInt16
    let sequence: UInt64
    let length: Int

    static let size = 13
    /// The offset of the sequence number, after the type, the version and the epoch.
    static let sequencePlace = 5
    static let cipherChange: UInt8 = 20
    static let handshake: UInt8 = 22
    static let data: UInt8 = 23
    /// ChangeCipherSpec, alert, handshake and application data.
    private static var types: ClosedRange<UInt8> { 20...23 }
    // DTLS 1.0, which the first handshake records use, and DTLS 1.2.
    private static var dtls10: UInt16 { 0xFEFF }
    private static var dtls12: UInt16 { 0xFEFD }
    /// The maximum length of an encrypted record (RFC 5246, 6.2.3).
    private static let lengthLimit = 16 * 1024 + 2048

    /// Returns `nil` if the record is incomplete.
    init?(_ bytes: Slice<UnsafeRawBufferPointer>) {
        self.init(UnsafeRawBufferPointer(rebasing: bytes))
    }

    /// Uses three loads instead of a `FieldReader`, because this runs for every record in both directions.
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

    /// Without renegotiation there are only two epochs, and application data is sent in the second.
    func isUsable(isEstablished: Bool) -> Bool {
        isOfDTLS && (epoch == 1 || (epoch == 0 && !isEstablished && type != Self.data))
    }
}

// Rules for the BIO over datagrams, in addition to the rules of `EngineBIO`:
//  1. Each read returns one record, which OpenSSL treats as a whole datagram. A datagram may contain several
//     records, so this makes it possible to hold back bytes between two records (`isHeld`), as with TLS.
//  2. Each write produces one datagram.
//  3. The BIO does not report how full `output` is (BIO_CTRL_WPENDING), because OpenSSL would treat those
//     bytes as the start of the datagram that it is building. The BIO does not report an MTU either: the
//     engine sets it directly.
//  4. A poisoned BIO reports end of file, because OpenSSL drops records that it cannot parse.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

extension EngineBIO {
    static let datagramMethod = Method {
        EngineBIO.readRecord($0, $1, $2)
    } write: {
        EngineBIO.writeDatagram($0, $1, $2)
    } control: { bio, command, _, _ in
        EngineBIO.answerDatagramControl(bio, command)
    }

    private static func readRecord(_ bio: OpaquePointer?, _ buffer: UnsafeMutablePointer<CChar>?, _ capacity: Int32) -> Int32 {
        guard let engineBIO = owner(of: bio), let buffer, capacity > 0 else { return -1 }
        COpenSSL_BIO_clearRetryFlags(bio)
        let room = UnsafeMutableRawBufferPointer(start: buffer, count: Int(capacity))
        return answer(engineBIO._withUnsafeGuaranteedRef { $0.readRecord(into: room) }, on: bio)
    }

    private func readRecord(into room: UnsafeMutableRawBufferPointer) -> Transfer {
        if poisonGiven != nil || isAbandoned { return .endOfFile }
        if isHeld { return .tryAgain }
        guard let records, let size = popRecord(of: records) else { return .tryAgain }
        let record = UnsafeRawBufferPointer(rebasing: received.readableBytes[..<size])
        records.noteRead(record, isEstablished: withholdsEnd)
        // OpenSSL's buffer is large enough for the largest record.
        let count = min(size, room.count)
        if let target = room.baseAddress, let source = record.baseAddress { memcpy(target, source, count) }
        received.consume(size)
        handshakeByteCount += size
        hasHeardFromPeer = true
        return .moved(count)
    }

    /// Returns the size of the next record that OpenSSL may read, and drops the unacceptable records before
    /// it.
    private func popRecord(of records: RecordQueues) -> Int? {
        while let size = records.received.popFirst() {
            let record = UnsafeRawBufferPointer(rebasing: received.readableBytes[..<size])
            if records.admits(record, isEstablished: withholdsEnd) { return size }
            received.consume(size)
        }
        return nil
    }

    private static func writeDatagram(_ bio: OpaquePointer?, _ bytes: UnsafePointer<CChar>?, _ count: Int32) -> Int32 {
        guard let engineBIO = owner(of: bio), let bytes, count > 0 else { return -1 }
        COpenSSL_BIO_clearRetryFlags(bio)
        engineBIO._withUnsafeGuaranteedRef { $0.write(datagram: UnsafeRawBufferPointer(start: bytes, count: Int(count))) }
        return count
    }

    private func write(datagram: UnsafeRawBufferPointer) {
        if let renumbered = records?.renumbered(datagram) {
            renumbered.withUnsafeBytes { putOrCancel($0) }
        } else {
            putOrCancel(datagram)
        }
    }

    private func putOrCancel(_ datagram: UnsafeRawBufferPointer) {
        // Datagrams over the limit are dropped, as the network may do.
        guard output.count < Self.outputLimitWhileReading else { return }
        if isAbandoned, let header = RecordHeader(datagram[...]), AlertRecord.matches(datagram, header) {
            let goodbye = AlertRecord.cancellation(from: header.sequence)
            return goodbye.withUnsafeBytes { put($0) }
        }
        put(datagram)
    }

    private func put(_ datagram: UnsafeRawBufferPointer) {
        output.append(datagram)
        records?.noteWritten(datagram)
    }

    private static func answerDatagramControl(_ bio: OpaquePointer?, _ command: Int32) -> Int {
        switch command {
        case BIO_CTRL_FLUSH: 1
        case BIO_CTRL_EOF: owner(of: bio)?._withUnsafeGuaranteedRef { $0.poisonGiven != nil || $0.isAtEndOfFile ? 1 : 0 } ?? 0
        default: 0
        }
    }
}

// MARK: - Both transports

extension EngineBIO {
    func send(_ alert: TLSAlert) {
        guard let records else { return AlertRecord.bytes(alert).withUnsafeBytes { output.append($0) } }
        AlertRecord.datagramBytes(alert, sequence: records.nextPlainSequence).withUnsafeBytes { put($0) }
    }
}

import Glibc
import SocketBuffers

@testable import SocketTLS

extension FuzzTarget {
    /// DTLS datagrams before OpenSSL: records, fragments, cookies and the selection of settings.
    static let dtlsDatagrams = FuzzTarget(name: "dtls-datagrams", maximumLength: 80_000) { input in
        var input = input
        let flags = input.byte()
        let cookies = try DTLSCookies()
        let queues = RecordQueues()
        if flags & 1 == 0 { queues.fragments = HandshakeFragments(with: FixedIdentity.datagramServer.values) }
        if flags & 2 == 0 { queues.beginNumbering(at: UInt64(flags)) }
        var fragments = MessageFragments(of: 1, limit: ClientHelloMessage.bytesOfMessage)
        let buffer = PreBuffer()
        while !input.isEmpty {
            let datagram = input.part()
            try datagram.withUnsafeBytes { datagram in
                try check(cookies, datagram)
                _ = DTLSCookies.digest(ofHello: datagram)
                _ = fragments.isPart(datagram)
                if let message = fragments.add(datagram) {
                    try require(message.count <= 4 + ClientHelloMessage.bytesOfMessage, "the message is too long")
                    _ = message.withUnsafeBytes { TLSClientHello($0, hasCookie: true) }
                }
                let before = buffer.count
                queues.accept(datagram, into: buffer, isEstablished: flags & 4 != 0)
                try require(buffer.count <= 64 * 1024, "\(buffer.count) bytes are queued")
                try require(buffer.count - before <= datagram.count, "more bytes are queued than arrived")
                if let copy = queues.renumbered(datagram) { try require(copy.count == datagram.count, "the length changes") }
                queues.noteWritten(datagram)
            }
            try readRecords(queues, buffer, isEstablished: flags & 4 != 0)
        }
        try require(fragments.datagrams.reduce(0) { $0 + $1.count } <= 64 * 1024, "too many bytes are kept")
    }

    /// The reply to a ClientHello is never longer than the ClientHello, and no cookie can be guessed.
    private static func check(_ cookies: DTLSCookies, _ datagram: UnsafeRawBufferPointer) throws {
        switch cookies.judge(datagram, from: [127, 0, 0, 1]) {
        case .none: break
        case .admission: throw FuzzFailure(description: "a guessed cookie is valid")
        case .request(let request): try require(request.count <= datagram.count, "the reply is longer than the ClientHello")
        }
    }

    private static func readRecords(_ queues: RecordQueues, _ buffer: PreBuffer, isEstablished: Bool) throws {
        while let size = queues.received.popFirst() {
            try require(size <= buffer.count, "a record of \(size) bytes, but only \(buffer.count) are queued")
            let record = Array(buffer.readableBytes.prefix(size))
            record.withUnsafeBytes { record in
                if queues.admits(record, isEstablished: isEstablished) { queues.noteRead(record, isEstablished: isEstablished) }
            }
            buffer.consume(size)
        }
    }
}

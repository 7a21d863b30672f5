/// Reads a ClientHello from the first records of a connection, before OpenSSL does.
struct ClientHelloReader {
    enum Reading {
        /// More bytes are needed: at least `minimum` in total.
        case incomplete(minimum: Int)
        /// The bytes are not a ClientHello, or not in a form that this reader supports: see rule 4 of
        /// `TLSServerNames`.
        case unreadable
        case complete(TLSClientHello)
    }

    /// A record that starts after this many bytes is rejected, because it would not fit into the read-ahead
    /// buffer. A client may split the message into any number of records (RFC 8446, 5.1), and OpenSSL accepts
    /// empty records too.
    private static let limit = 48 * 1024

    /// The maximum size of the records that are read.
    static let maximumLength = limit + 5 + 16_384

    private var message: [UInt8] = []
    private var recordsLeft: Int
    /// The size of the records that have been read.
    private(set) var offset = 0

    /// - Parameter maximumRecords: A limit for callers that start again whenever more bytes arrive.
    init(maximumRecords: Int = .max) {
        recordsLeft = maximumRecords
    }

    /// - Parameter records: All bytes received so far, including the bytes passed in earlier calls. No byte
    ///   is read twice.
    mutating func read(_ records: UnsafeRawBufferPointer) -> Reading {
        while offset < Self.limit {
            let rest = UnsafeRawBufferPointer(rebasing: records[offset...])
            guard rest.isEmpty || rest[0] == 22 else { return .unreadable }
            guard rest.count >= 5 else { return .incomplete(minimum: offset + 5) }
            let length = Int(rest[3]) << 8 | Int(rest[4])
            // A handshake record with major version 3 (RFC 8446, 5.1).
            guard rest[1] == 3, length <= 16_384 else { return .unreadable }
            guard rest.count >= 5 + length else { return .incomplete(minimum: offset + 5 + length) }
            guard recordsLeft > 0 else { return .unreadable }
            recordsLeft -= 1
            message += rest[5..<5 + length]
            offset += 5 + length
            if let reading = finish() { return reading }
        }
        return .unreadable
    }

    /// Returns `nil` if the message is incomplete.
    private func finish() -> Reading? {
        guard message.count >= 4 else { return nil }
        let size = 4 + Int(message[1]) << 16 + Int(message[2]) << 8 + Int(message[3])
        guard message[0] == 1, size <= ClientHelloMessage.bytesOfMessage else { return .unreadable }
        guard message.count >= size else { return nil }
        return message.withUnsafeBytes {
            TLSClientHello(UnsafeRawBufferPointer(rebasing: $0[..<size])).map { .complete($0) } ?? .unreadable
        }
    }
}

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

extension TLSClientHello {
    /// A client may split its message into more records than this (RFC 8446, section 5.1), but no known
    /// client does. Each call parses all records again, and many short records would be costly.
    private static let maximumRecords = 64

    /// The maximum size of the records with the message.
    package static let maximumLength = ClientHelloReader.maximumLength

    package enum Parsing {
        case incomplete(minimumLength: Int)
        /// - Parameter length: The size of the records with the message.
        case complete(TLSClientHello, length: Int)
    }

    /// Parses the ClientHello at the start of a TLS connection, for programs that choose a destination by its
    /// server name and forward the connection without decrypting it.
    ///
    /// Returns `nil` if the message is incomplete: call this again when more bytes have arrived. To read the
    /// message from a socket, use `AsyncSocket.readFrame(_:timeout:)` with a `TLSClientHelloFraming`.
    ///
    /// The name is only requested. Nothing proves that it will be used: with Encrypted Client
    /// Hello, it is the public name of the provider.
    ///
    /// - Parameter records: All bytes that the client has sent so far. Bytes after the message are ignored.
    /// - Throws: `.notTLS` if the bytes are not the start of a TLS handshake, and `.protocolViolation` if the
    ///   message is malformed, larger than 32 KiB, or split into more than 64 records.
    public init?(records: RawSpan) throws(TLSError) {
        guard case .complete(let hello, _) = try Self.parse(records) else { return nil }
        self = hello
    }

    /// Implements `init(records:)`.
    package static func parse(_ records: RawSpan) throws(TLSError) -> Parsing {
        var reader = ClientHelloReader(maximumRecords: maximumRecords)
        let reading = records.withUnsafeBytes { reader.read($0) }
        switch reading {
        case .incomplete(let minimum): return .incomplete(minimumLength: minimum)
        case .complete(let hello): return .complete(hello, length: reader.offset)
        case .unreadable:
            // A handshake record with major version 3 (RFC 8446, section 5.1).
            let start = records.withUnsafeBytes { Array($0.prefix(2)) }
            guard start[0] == 22, start.count < 2 || start[1] == 3 else {
                throw TLSError(.notTLS, "the client did not start a TLS handshake", operation: "ClientHello")
            }
            throw TLSError(.protocolViolation, "the ClientHello is malformed or too long", operation: "ClientHello")
        }
    }
}

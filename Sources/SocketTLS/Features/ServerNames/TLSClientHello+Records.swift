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

// Rules of the parser (the PROXY protocol, section 2):
//  1. It is stateless. The caller passes all bytes from the first onwards, until the result is no longer
//     `incomplete`. The number of bytes is bounded by `ProxyHeaderLine.longest` and by `maximumCount`.
//  2. It consumes exactly the header. TLS or application data may follow immediately.
//  3. It fails at the first invalid byte: in the signature, the characters of a line, the version, the
//     command, the family or the length. Addresses and ports are checked once they are complete.
//  4. `minimumCount` never exceeds the length of the header. A reader that must not read past the header
//     can read that many bytes and then parse again.
//  5. LOCAL, UNKNOWN and an unspecified family or transport produce a header without addresses, so the real
//     addresses of the connection apply. The rest of the header, including fields, is skipped, because the
//     position of the fields is unknown.
//  6. Two fields of the same registered type are rejected, because implementations could disagree about
//     which one applies.

extension ProxyHeader {
    /// The result of parsing.
    package enum ParsingAnswer: Sendable, Hashable {
        /// The bytes are the start of a header with a total length of at least `minimumCount` bytes.
        case incomplete(minimumCount: Int)
        /// The first `consumedCount` bytes are a complete header.
        case complete(ProxyHeader, consumedCount: Int)
        /// The bytes are not a valid header, regardless of further input.
        case failed(ProxyHeaderError)
    }

    /// The default limit on the size of a header: 4 KiB.
    package static let defaultMaximumCount = 4096

    /// Parses the header at the start of a connection.
    ///
    /// A peer can stall a connection by sending a partial header, so set a timeout of a few seconds (at
    /// least three, according to section 2 of the specification). If the peer closes the connection before
    /// the header is complete, treat the connection as having no header.
    ///
    /// - Parameters:
    ///   - bytes: All bytes that the peer has sent so far, starting with the first.
    ///   - maximumCount: The maximum length of a version 2 header in bytes, including its fields. A version
    ///     1 header has at most 107 bytes.
    /// - Returns: The parsing result. A failure has the code `.malformed`, `.tooLong` or `.wrongChecksum`
    ///   and is the peer's fault.
    package static func parse(
        _ bytes: UnsafeRawBufferPointer, maximumCount: Int = ProxyHeader.defaultMaximumCount
    ) -> ParsingAnswer {
        do throws(ProxyHeaderError) {
            if ProxyHeaderBlock.isBeginning(bytes), !bytes.isEmpty {
                return try ProxyHeaderBlock.parse(bytes, maximumCount: maximumCount)
            }
            return try ProxyHeaderLine.parse(bytes)
        } catch {
            return .failed(error)
        }
    }
}

extension ProxyHeaderError {
    static func malformed(_ message: String) -> ProxyHeaderError {
        ProxyHeaderError(.malformed, message)
    }
}

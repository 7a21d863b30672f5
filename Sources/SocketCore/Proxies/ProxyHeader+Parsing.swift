// Rules of the parser (the PROXY protocol, section 2):
//  1. It holds nothing: the caller passes all bytes from the first one on, until the answer is another one
//     than `incomplete`. That is bounded, by `ProxyHeaderLine.longest` and by `maximumCount`.
//  2. It takes the header and not one byte more: TLS or data follows.
//  3. It fails with the first byte that cannot be right: a byte of the signature or of a line's characters, a
//     version, a command, a family, a length. An address or a port is judged when all of it is there.
//  4. `minimumCount` is never more than the length of the header: a reader that wants no byte behind the
//     header may wait for so many, and ask again.
//  5. LOCAL, UNKNOWN and an unspecified family or transport give a header without addresses: the real ones of
//     the connection count. The rest is skipped unread, fields included, since nothing says where they begin.
//  6. Two fields of one registered type are refused: programs would differ about which counts.

extension ProxyHeader {
    /// The meaning of bytes.
    public enum ParsingAnswer: Sendable, Hashable {
        /// The beginning of a header, which has at least `minimumCount` bytes in all.
        case incomplete(minimumCount: Int)
        /// A header, in the first `consumedCount` bytes.
        case complete(ProxyHeader, consumedCount: Int)
        /// No header, whatever follows.
        case failed(ProxyHeaderError)
    }

    /// The most bytes of a header, unless the caller says something else: 4 KiB.
    public static let defaultMaximumCount = 4096

    /// The header at the beginning of a connection.
    ///
    /// A peer that sends half a header keeps its connection waiting: give it a few seconds (section 2 of the
    /// specification: at least three). When it ends the connection before the header is complete, there is no
    /// header.
    ///
    /// - Parameters:
    ///   - bytes: All that the peer has sent, from its first byte on.
    ///   - maximumCount: The most bytes that a header of version 2 may have, fields included. Version 1 has
    ///     at most 107.
    /// - Returns: `.failed` with `.malformed`, `.tooLong` or `.wrongChecksum`; the peer is to blame.
    public static func parse(
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

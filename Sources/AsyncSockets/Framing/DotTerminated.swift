public import FoundationEssentials
internal import Glibc

/// Bodies that are terminated by a line with a single dot, as in SMTP (RFC 5321, section 4.5.2), POP3 (RFC
/// 1939, section 3) and NNTP (RFC 3977, section 3.1.1).
///
/// A received body is terminated by CR LF "." CR LF. A bare CR or LF is content: a receiver that accepts
/// either as a line break can be tricked into treating part of a message as commands (SMTP smuggling). In a
/// sent body, each CR LF, CR or LF is a line break and is sent as CR LF, so that all receivers agree on the
/// end of the body.
///
/// A body is in memory as a whole, and is decoded in one step on the connection's event loop.
public struct DotTerminated: Framing {
    /// The maximum length of the content in bytes, with CR LF line breaks.
    public let maxLength: Int

    /// Creates a framing for dot-terminated bodies.
    ///
    /// - Parameter maxLength: The maximum length of the content in bytes. Defaults to 1 MiB. A longer body
    ///   that is received closes the connection with `.readMaxedOut`; one to be sent throws `.badParameter`.
    public init(maxLength: Int = 1 << 20) {
        self.maxLength = Swift.min(Swift.max(maxLength, 0), .max / 2)
    }

    /// The maximum encoded length in bytes, with the terminator. The worst case is content of lines with a
    /// single dot, each of which gains a dot.
    public var maximumFrameLength: Int { maxLength + maxLength / 3 + Self.terminator.count }

    private static let terminator = Data("\r\n.\r\n".utf8)
    private static let (dot, cr, lf) = (UInt8(ascii: "."), UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    /// Returns the content, without the terminator and without the dots that the sender has added to lines
    /// that start with a dot. Lines keep their CR LF. The content of an empty body is empty.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        try decode(bytes, seen: 0)
    }

    /// - Parameter seen: The number of bytes that have already been searched.
    func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Data> {
        let found = bytes.withUnsafeBytes { bytes -> (content: Data, length: Int)? in
            if Self.isTerminatingLine(at: 0, in: bytes) { return (Data(), 3) }
            guard let end = Self.endOfContent(in: bytes, from: Swift.max(seen - Self.terminator.count, 0)) else { return nil }
            return (Self.unstuffed(UnsafeRawBufferPointer(rebasing: bytes[..<end])), end + 3)
        }
        guard let found else { return .incomplete(minimumLength: bytes.byteCount + 1) }
        guard found.content.count <= maxLength else { throw .frameTooLong("\(found.content.count)", maxLength) }
        return .frame(found.content, length: found.length)
    }

    /// Appends `body` with CR LF line breaks and with a dot before each line that starts with a dot, then the
    /// terminator. If the last line has no line break, one is added.
    ///
    /// - Throws: `.badParameter` if the content with these line breaks is longer than `maxLength`.
    public func encode(_ body: Data, into bytes: inout Data) throws(AsyncSocketError) {
        var dotCount = 0
        var encoded: [UInt8] = []
        encoded.reserveCapacity(body.count + body.count / 16 + Self.terminator.count)
        var (isAtLineStart, previous) = (true, UInt8(0))
        for byte in body {
            defer { previous = byte }
            if byte == Self.lf && previous == Self.cr { continue }
            if byte == Self.cr || byte == Self.lf {
                encoded.append(Self.cr)
                encoded.append(Self.lf)
                isAtLineStart = true
                continue
            }
            if isAtLineStart && byte == Self.dot {
                encoded.append(Self.dot)
                dotCount += 1
            }
            encoded.append(byte)
            isAtLineStart = false
        }
        encoded.append(contentsOf: isAtLineStart ? Self.terminator.dropFirst(2) : Self.terminator)
        let count = encoded.count - dotCount - 3
        guard count <= maxLength else { throw .frameTooLong("\(count)", maxLength, fault: .caller) }
        bytes.append(contentsOf: encoded)
    }

    /// The position after the CR LF that precedes the terminating line, if it is at `start` or later.
    private static func endOfContent(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var line = start
        while let next = lineBreak(in: bytes, from: line) {
            if isTerminatingLine(at: next, in: bytes) { return next }
            line = next
        }
        return nil
    }

    private static func isTerminatingLine(at position: Int, in bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.count - position >= 3 && bytes[position] == dot && bytes[position + 1] == cr && bytes[position + 2] == lf
    }

    /// Removes the added dots.
    private static func unstuffed(_ bytes: UnsafeRawBufferPointer) -> Data {
        var content = Data(capacity: bytes.count)
        var (copied, line) = (0, 0)
        while line < bytes.count {
            if bytes[line] == dot {
                content.append(contentsOf: bytes[copied..<line])
                copied = line + 1
            }
            guard let next = lineBreak(in: bytes, from: line) else { break }
            line = next
        }
        content.append(contentsOf: bytes[copied...])
        return content
    }

    /// The position after the next CR LF.
    private static func lineBreak(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var position = start
        while position < bytes.count, let base = bytes.baseAddress,
            let found = memchr(base + position, CInt(lf), bytes.count - position)
        {
            let index = UnsafeRawPointer(found) - base
            if index > start, bytes[index - 1] == cr { return index + 1 }
            position = index + 1
        }
        return nil
    }
}

extension DotTerminated: ResumableFraming {}

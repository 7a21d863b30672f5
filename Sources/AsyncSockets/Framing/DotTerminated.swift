public import FoundationEssentials
internal import Glibc

/// Bodies that are terminated by a line with a single dot, as in SMTP (RFC 5321, section 4.5.2), POP3 (RFC
/// 1939, section 3) and NNTP (RFC 3977, section 3.1.1).
///
/// A received body is terminated by CR LF "." CR LF. A bare CR or LF is content: a receiver that accepts
/// either as a line break can be tricked into treating part of a message as commands (SMTP smuggling). In a
/// sent body, each CR LF, CR or LF is a line break and is sent as CR LF, so that all receivers agree on the
/// end of the body.
public struct DotTerminated: Framing {
    /// The maximum length of the content in bytes.
    public let maxLength: Int

    /// Creates a framing for bodies.
    ///
    /// - Parameter maxLength: The maximum length of the content in bytes. Defaults to 1 MiB.
    public init(maxLength: Int = 1 << 20) {
        self.maxLength = Swift.min(Swift.max(maxLength, 0), .max / 2)
    }

    /// The length of the longest content in which each line is a dot, with the added dots and the terminator.
    public var maximumFrameLength: Int { maxLength + maxLength / 3 + Self.terminator.count }

    private static let terminator = Data("\r\n.\r\n".utf8)
    private static let (dot, cr, lf) = (UInt8(ascii: "."), UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    /// Returns the content, without the terminator and without the dots that the sender has added to lines
    /// that start with a dot. Lines keep their CR LF.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        try decode(bytes, seen: 0)
    }

    /// - Parameter seen: The number of bytes that have already been searched.
    func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Data> {
        let found = bytes.withUnsafeBytes { bytes -> (content: Data, length: Int)? in
            if bytes.starts(with: Self.terminator.dropFirst(2)) { return (Data(), 3) }
            guard let end = Self.endOfContent(in: bytes, from: Swift.max(seen - Self.terminator.count, 0)) else { return nil }
            return (Self.unstuffed(UnsafeRawBufferPointer(rebasing: bytes[..<end])), end + 3)
        }
        guard let found else { return .incomplete(minimumLength: bytes.byteCount + 1) }
        guard found.content.count <= maxLength else { throw .frameTooLong("\(found.content.count)", maxLength) }
        return .frame(found.content, length: found.length)
    }

    /// Appends `body` with a dot before each line that starts with a dot, then the terminator.
    public func encode(_ body: Data, into bytes: inout Data) throws(AsyncSocketError) {
        guard body.count <= maxLength else { throw .frameTooLong("\(body.count)", maxLength, fault: .caller) }
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
            if isAtLineStart, byte == Self.dot { encoded.append(Self.dot) }
            encoded.append(byte)
            isAtLineStart = false
        }
        bytes.append(contentsOf: encoded)
        bytes.append(isAtLineStart ? Self.terminator.dropFirst(2) : Self.terminator)
    }

    /// The position after the CR LF that precedes the terminating line, if it is at `start` or later.
    private static func endOfContent(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var line = start
        while let next = lineBreak(in: bytes, from: line) {
            if bytes[next...].starts(with: terminator.dropFirst(2)) { return next }
            line = next
        }
        return nil
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

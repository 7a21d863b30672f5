// Bodies terminated by a line with a single dot, as in SMTP (RFC 5321, section 4.5.2), POP3 (RFC 1939,
// section 3) and NNTP (RFC 3977, section 3.1.1). Rules:
//  1. A received body is terminated by CR LF "." CR LF. A bare CR or LF is content: a receiver that accepts
//     either as a line break can be tricked into treating part of a message as commands (SMTP smuggling).
//  2. In a sent body, each CR LF, CR or LF is a line break and is sent as CR LF, so that all receivers agree
//     on the end of the body.

internal import FoundationEssentials
internal import Glibc

/// Removes the dots that the sender has added, and finds the end of the body.
struct DotUnstuffing {
    private static let (dot, cr, lf) = (UInt8(ascii: "."), UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    private(set) var isComplete = false
    private var isAtLineStart = true

    /// Decodes as much of `bytes` as possible, and appends the content to `output`.
    ///
    /// - Returns: The number of bytes consumed. If this is less than `bytes.count` and the body is not
    ///   complete, the rest must be passed again, with more bytes after it.
    mutating func take(_ bytes: UnsafeRawBufferPointer, into output: inout Data) -> Int {
        var position = 0
        while position < bytes.count {
            if isAtLineStart, bytes[position] == Self.dot {
                let rest = bytes.count - position
                guard rest > 1, rest > 2 || bytes[position + 1] != Self.cr else { return position }
                if bytes[position + 1] == Self.cr, bytes[position + 2] == Self.lf {
                    isComplete = true
                    return position + 3
                }
                position += 1
            }
            let end = endOfLine(in: bytes, from: position)
            // A CR at the end may belong to a CR LF.
            let count = end ?? bytes.count - (bytes[bytes.count - 1] == Self.cr ? 1 : 0)
            guard count > position else { return position }
            output.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[position..<count]))
            position = count
            isAtLineStart = end != nil
            if end == nil { return position }
        }
        return position
    }

    /// The position after the next CR LF.
    private func endOfLine(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var position = start
        while position < bytes.count, let base = bytes.baseAddress,
            let found = memchr(base + position, CInt(Self.lf), bytes.count - position)
        {
            let index = UnsafeRawPointer(found) - base
            if index > start, bytes[index - 1] == Self.cr { return index + 1 }
            position = index + 1
        }
        return nil
    }
}

/// Prepares the content of a body for sending.
struct DotStuffing {
    private static let (dot, cr, lf) = (UInt8(ascii: "."), UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    private var isAtLineStart = true
    /// Whether the last byte was a CR, whose LF has already been sent.
    private var isAfterCR = false

    mutating func encode(_ bytes: UnsafeRawBufferPointer) -> Data {
        var output = Data(capacity: bytes.count + bytes.count / 16 + 2)
        var breaks = LineBreaks(bytes)
        var position = isAfterCR && bytes.first == Self.lf ? 1 : 0
        // The position of the next byte to append.
        var start = position
        func append(upTo end: Int) { output.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[start..<end])) }
        while position < bytes.count {
            if isAtLineStart, bytes[position] == Self.dot {
                append(upTo: position)
                output.append(Self.dot)
                start = position
            }
            let end = breaks.next(from: position)
            isAtLineStart = end < bytes.count
            guard isAtLineStart else { break }
            position = end + 1
            if bytes[end] == Self.lf {
                append(upTo: end)
                output.append(Self.cr)
                start = end
            } else if position < bytes.count, bytes[position] == Self.lf {
                position += 1
            } else {
                append(upTo: position)
                output.append(Self.lf)
                start = position
            }
        }
        append(upTo: bytes.count)
        if let last = bytes.last { isAfterCR = last == Self.cr }
        return output
    }

    /// The end of the body.
    var end: Data { Data((isAtLineStart ? ".\r\n" : "\r\n.\r\n").utf8) }

    /// Finds line breaks in linear time, even if only one of the two kinds occurs.
    private struct LineBreaks {
        let bytes: UnsafeRawBufferPointer
        private var (cr, lf) = (-1, -1)

        init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

        /// The position of the next CR or LF, or `bytes.count`.
        mutating func next(from start: Int) -> Int {
            if cr < start { cr = find(DotStuffing.cr, from: start) }
            if lf < start { lf = find(DotStuffing.lf, from: start) }
            return min(cr, lf)
        }

        private func find(_ byte: UInt8, from start: Int) -> Int {
            guard let base = bytes.baseAddress, let found = memchr(base + start, CInt(byte), bytes.count - start) else {
                return bytes.count
            }
            return UnsafeRawPointer(found) - base
        }
    }
}

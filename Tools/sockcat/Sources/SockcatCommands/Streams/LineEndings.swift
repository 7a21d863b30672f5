internal import FoundationEssentials
internal import Glibc

/// Converts LF to CRLF in a stream of chunks. Existing CRLF pairs stay as they are, even across chunks.
struct LineEndings {
    private static let (carriageReturn, lineFeed) = (UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    private var endsWithCarriageReturn = false

    mutating func converted(_ bytes: Data) -> Data {
        var result = Data(capacity: bytes.count + bytes.count / 16)
        for byte in bytes {
            if byte == Self.lineFeed, !endsWithCarriageReturn { result.append(Self.carriageReturn) }
            result.append(byte)
            endsWithCarriageReturn = byte == Self.carriageReturn
        }
        return result
    }
}

/// Splits a stream of chunks into lines, which keep their terminators.
struct LineSplitter {
    private var rest = Data()

    /// Appends bytes and returns the lines that are complete.
    mutating func lines(in bytes: Data) -> [Data] {
        var lines: [Data] = []
        var start = bytes.startIndex
        while let end = bytes[start...].firstIndex(of: UInt8(ascii: "\n")) {
            lines.append(rest + bytes[start...end])
            rest = Data()
            start = end + 1
        }
        rest += bytes[start...]
        return lines
    }

    /// Returns the last line, which has no terminator, or `nil` if there is no such line.
    mutating func lastLine() -> Data? {
        defer { rest = Data() }
        return rest.isEmpty ? nil : rest
    }

    /// The number of bytes after the last terminator.
    var pendingCount: Int { rest.count }
}

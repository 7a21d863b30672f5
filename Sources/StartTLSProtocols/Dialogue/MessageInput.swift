/// The received bytes that are not yet consumed. No byte is searched twice for the end of a line.
struct MessageInput: Sendable {
    /// The maximum number of bytes in a dialogue, including consumed bytes.
    static let limit = 64 * 1024
    /// The first byte of TLS records with handshake messages, such as a ClientHello.
    static let handshakeRecord: UInt8 = 22
    /// The first byte of TLS records with alerts.
    static let alertRecord: UInt8 = 21
    /// The second byte of all TLS records.
    static let recordVersion: UInt8 = 3

    // Consumed bytes are not removed: a dialogue consumes at most `limit` bytes.
    private var bytes: [UInt8] = []
    private var head = 0
    private var searched = 0
    /// The quote of the attribute value that is open at `searched`, if any.
    private var openQuote: UInt8?

    var count: Int { end - head }
    var isEmpty: Bool { head == end }
    var rest: ArraySlice<UInt8> { bytes[head..<end] }
    var text: String { String(decoding: rest, as: UTF8.self) }
    /// `rest`, followed by the bytes beyond the limit, which cannot be part of a message.
    var everything: ArraySlice<UInt8> { bytes[head...] }
    var exceedsLimit: Bool { bytes.count > Self.limit }

    private var end: Int { min(bytes.count, Self.limit) }

    mutating func append(_ more: some Collection<UInt8>) {
        bytes.append(contentsOf: more)
    }

    /// Removes and returns `count` bytes, or `nil` if fewer have arrived.
    mutating func take(_ count: Int) -> ArraySlice<UInt8>? {
        guard count <= self.count else { return nil }
        defer { head += count }
        return bytes[head..<head + count]
    }

    /// Removes and returns a line without its line ending, which is CR LF or LF. Returns `nil` if the line is
    /// incomplete. Bytes that are not printable ASCII become question marks, because comparisons of other
    /// text can take time that grows with the square of its length.
    mutating func line() -> String? {
        lineBytes().map { String(decoding: $0.map { (32...126).contains($0) ? $0 : UInt8(ascii: "?") }, as: UTF8.self) }
    }

    /// Removes and returns the bytes of a line. See `line()`.
    mutating func lineBytes() -> ArraySlice<UInt8>? {
        guard let lineFeed = endOfLine() else { return nil }
        let line = bytes[head..<lineFeed]
        head = lineFeed + 1
        return line.last == 13 ? line.dropLast() : line
    }

    /// Removes and returns an XML tag, up to the first `>` outside of quotes. Returns `nil` if the tag is
    /// incomplete.
    mutating func tag() -> ArraySlice<UInt8>? {
        searched = max(searched, head)
        for index in searched..<end {
            let byte = bytes[index]
            searched = index + 1
            if openQuote != nil {
                if byte == openQuote { openQuote = nil }
            } else if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") {
                openQuote = byte
            } else if byte == UInt8(ascii: ">") {
                defer { head = searched }
                return bytes[head..<searched]
            }
        }
        return nil
    }

    private mutating func endOfLine() -> Int? {
        searched = max(searched, head)
        let lineFeed = bytes[searched..<end].firstIndex(of: 10)
        searched = lineFeed ?? end
        return lineFeed
    }
}

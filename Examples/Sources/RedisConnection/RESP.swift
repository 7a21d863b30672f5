package import AsyncSockets
package import Foundation

/// A Redis value. A command is an array of bulk strings.
package indirect enum RedisValue: Sendable {
    case simple(String)
    case error(String)
    case integer(Int)
    case bulk(Data?)
    case array([RedisValue]?)

    package static func command(_ words: [Substring]) -> RedisValue {
        .array(words.map { .bulk(Data($0.utf8)) })
    }
}

/// The Redis protocol, version 2. Each value is a frame.
package struct RESP: Framing {
    package let maximumFrameLength = 64 << 20

    package init() {}

    package func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<RedisValue> {
        try bytes.withUnsafeBytes { bytes throws(AsyncSocketError) in
            var parser = RESPParser(bytes: bytes)
            guard let value = try parser.value() else { return .incomplete(minimumLength: parser.minimumLength) }
            return .frame(value, length: parser.position)
        }
    }

    package func encode(_ value: RedisValue, into bytes: inout Data) throws(AsyncSocketError) {
        switch value {
        case .simple(let text): bytes.append(contentsOf: "+\(text)\r\n".utf8)
        case .error(let text): bytes.append(contentsOf: "-\(text)\r\n".utf8)
        case .integer(let number): bytes.append(contentsOf: ":\(number)\r\n".utf8)
        case .bulk(nil): bytes.append(contentsOf: "$-1\r\n".utf8)
        case .bulk(let data?):
            bytes.append(contentsOf: "$\(data.count)\r\n".utf8)
            bytes.append(data)
            bytes.append(contentsOf: "\r\n".utf8)
        case .array(nil): bytes.append(contentsOf: "*-1\r\n".utf8)
        case .array(let values?):
            bytes.append(contentsOf: "*\(values.count)\r\n".utf8)
            for value in values { try encode(value, into: &bytes) }
        }
    }
}

/// Parses one value.
private struct RESPParser {
    let bytes: UnsafeRawBufferPointer
    /// The number of bytes parsed so far.
    var position = 0
    /// The minimum length of the value in bytes, if it is incomplete.
    var minimumLength = 0
    private var depth = 0

    init(bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    /// Returns the value, or nil if it is incomplete.
    mutating func value() throws(AsyncSocketError) -> RedisValue? {
        guard let line = line() else { return nil }
        let text = String(decoding: line.dropFirst(), as: UTF8.self)
        switch line.first {
        case UInt8(ascii: "+"): return .simple(text)
        case UInt8(ascii: "-"): return .error(text)
        case UInt8(ascii: ":"): return .integer(try number(text))
        case UInt8(ascii: "$"):
            guard let length = try count(text) else { return .bulk(nil) }
            guard let data = data(length) else { return nil }
            return .bulk(data)
        case UInt8(ascii: "*"):
            guard let count = try count(text) else { return .array(nil) }
            guard let values = try values(count) else { return nil }
            return .array(values)
        default: throw malformed("a value starts with \(line.first.map(String.init) ?? "nothing")")
        }
    }

    private mutating func values(_ count: Int) throws(AsyncSocketError) -> [RedisValue]? {
        guard depth < 8 else { throw malformed("arrays are nested too deeply") }
        depth += 1
        defer { depth -= 1 }
        var values: [RedisValue] = []
        for _ in 0..<count {
            guard let value = try value() else { return nil }
            values.append(value)
        }
        return values
    }

    private mutating func line() -> Slice<UnsafeRawBufferPointer>? {
        guard let end = bytes[position...].firstIndex(of: UInt8(ascii: "\n")) else {
            minimumLength = bytes.count + 1
            return nil
        }
        defer { position = end + 1 }
        return bytes[position..<max(position, end - 1)]  // without the trailing CRLF
    }

    private mutating func data(_ length: Int) -> Data? {
        guard bytes.count - position >= length + 2 else {
            minimumLength = position + length + 2
            return nil
        }
        defer { position += length + 2 }
        return Data(bytes[position..<position + length])
    }

    private func number(_ text: String) throws(AsyncSocketError) -> Int {
        guard let number = Int(text) else { throw malformed("\(text) is not a number") }
        return number
    }

    /// Parses a length. Returns nil for -1, which stands for a null value.
    private func count(_ text: String) throws(AsyncSocketError) -> Int? {
        let count = try number(text)
        guard (-1...1 << 29).contains(count) else { throw malformed("\(count) is not a length") }
        return count < 0 ? nil : count
    }

    private func malformed(_ message: String) -> AsyncSocketError {
        .malformedFrame(message)
    }
}

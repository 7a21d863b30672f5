import AsyncSockets
import Foundation

/// A message in version 3 of PostgreSQL's protocol.
struct PostgresMessage: Sendable {
    /// Zero for the startup message, which has no type.
    var type: UInt8 = 0
    var body = Data()

    init(_ type: Character, _ body: Data) {
        self.type = type.asciiValue ?? 0
        self.body = body
    }

    private init(body: Data) {
        self.body = body
    }

    static func startup(user: String, database: String) -> PostgresMessage {
        var body = Data(number: 3 << 16)
        for text in ["user", user, "database", database] { body.append(text: text) }
        body.append(0)
        return PostgresMessage(body: body)
    }
}

/// A frame consists of the type, a length that includes its own four bytes, and the body.
struct PostgresFraming: Framing {
    let maximumFrameLength = 1 << 20

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<PostgresMessage> {
        try bytes.withUnsafeBytes { bytes throws(AsyncSocketError) in
            guard bytes.count >= 5 else { return .incomplete(minimumLength: 5) }
            let length = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self)))
            guard length >= 4 else { throw .malformedFrame("invalid message length \(length)") }
            guard bytes.count > length else { return .incomplete(minimumLength: length + 1) }
            let type = Character(UnicodeScalar(bytes[0]))
            return .frame(PostgresMessage(type, Data(bytes[5...length])), length: length + 1)
        }
    }

    func encode(_ message: PostgresMessage, into bytes: inout Data) throws(AsyncSocketError) {
        if message.type != 0 { bytes.append(message.type) }
        bytes.append(Data(number: message.body.count + 4))
        bytes.append(message.body)
    }
}

extension Data {
    /// A 32-bit integer in network byte order.
    init(number: Int) {
        self = Data([24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) })
    }

    /// Appends a zero-terminated string.
    mutating func append(text: String) {
        append(contentsOf: text.utf8)
        append(0)
    }

    /// The 32-bit integer at the start and the remaining bytes, or nil if there are fewer than four bytes.
    var leadingNumber: (value: Int, rest: Data)? {
        guard count >= 4 else { return nil }
        return (Int(prefix(4).reduce(Int32(0)) { $0 << 8 | Int32($1) }), dropFirst(4))
    }
}

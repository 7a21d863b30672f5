import AsyncSockets
import Foundation

/// A message of PostgreSQL's protocol, version 3: a type, and what it says.
struct PostgresMessage: Sendable {
    /// Zero for the first two of a client, which have none.
    var type: UInt8 = 0
    var body = Data()

    /// A message of a type, such as "p" for a password.
    init(_ type: Character, _ body: Data) {
        self.type = type.asciiValue ?? 0
        self.body = body
    }

    private init(body: Data) {
        self.body = body
    }

    /// Asks for TLS. The answer is one byte: S or N.
    static let sslRequest = PostgresMessage(body: Data(number: 80_877_103))

    static func startup(user: String, database: String) -> PostgresMessage {
        var body = Data(number: 3 << 16)
        for text in ["user", user, "database", database] { body.append(text: text) }
        body.append(0)
        return PostgresMessage(body: body)
    }
}

/// Its frames: the type, the length of what follows with itself, and that.
struct PostgresFraming: Framing {
    let maximumFrameLength = 1 << 20

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<PostgresMessage> {
        try bytes.withUnsafeBytes { bytes throws(AsyncSocketError) in
            guard bytes.count >= 5 else { return .incomplete(minimumLength: 5) }
            let length = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self)))
            guard length >= 4 else { throw .malformedFrame("a message is \(length) bytes long") }
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
    /// Four bytes, the most significant first.
    init(number: Int) {
        self = Data([24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) })
    }

    /// A text, and the zero byte that ends it.
    mutating func append(text: String) {
        append(contentsOf: text.utf8)
        append(0)
    }

    /// The first number, and what is behind it; nil when there is none.
    var leadingNumber: (value: Int, rest: Data)? {
        guard count >= 4 else { return nil }
        return (Int(prefix(4).reduce(Int32(0)) { $0 << 8 | Int32($1) }), dropFirst(4))
    }
}

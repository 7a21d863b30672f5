/// The client side of PostgreSQL (protocol 3.0, section "SSL Session Encryption").
struct PostgreSQLClient: Conversation {
    /// Whether the ClientHello is the client's first message (PostgreSQL 17).
    let isDirect: Bool

    var name: String { "PostgreSQL" }
    var isClient: Bool { true }

    mutating func start() -> ConversationAction {
        isDirect ? .startTLS([]) : .send(PostgreSQL.message(.ssl))
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        switch input.rest.first {
        case UInt8(ascii: "S"):
            _ = input.take(1)
            return .startTLS([])
        case UInt8(ascii: "N"):
            throw error(.notOffered, "the server does not offer TLS, or an attacker removed the offer", line: "N")
        // The message of a server that does not know the request.
        case UInt8(ascii: "E"):
            guard let text = Self.errorText(input) else { return nil }
            throw refused(text)
        default: throw unexpected(input.text)
        }
    }

    /// Returns the readable part of an ErrorResponse, or `nil` if it is incomplete.
    private static func errorText(_ input: MessageInput) -> String? {
        let bytes = input.rest.dropFirst()
        guard let length = bytes.integer(bytes: 4) else { return nil }
        // Servers of protocol 2.0 send text instead of a length.
        guard (4...8192).contains(length) else { return input.text }
        guard bytes.count >= length else { return nil }
        let fields = bytes.dropFirst(4).prefix(length - 4).split(separator: 0)
        let message = fields.first { $0.first == UInt8(ascii: "M") } ?? fields.first ?? []
        return String(decoding: message.dropFirst(), as: UTF8.self)
    }
}

/// The server side of PostgreSQL. A client that continues without TLS is rejected.
struct PostgreSQLServer: Conversation {
    let acceptsDirectTLS: Bool

    var name: String { "PostgreSQL" }
    var isClient: Bool { false }

    /// A client sends its next message after the reply.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { false }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        if acceptsDirectTLS, input.rest.first == MessageInput.handshakeRecord { return .startTLSImmediately([]) }
        guard let length = input.rest.integer(bytes: 4), let code = input.rest.dropFirst(4).integer(bytes: 4) else { return nil }
        guard (8...10_000).contains(length) else { throw unexpected(input.text) }
        switch PostgreSQL.Request(rawValue: code) {
        case .ssl where length == 8:
            _ = input.take(8)
            return .startTLS([UInt8(ascii: "S")])
        case .gssEncryption where length == 8:
            _ = input.take(8)
            return .send([UInt8(ascii: "N")])
        // A cancelled query would be identified by a secret in plaintext.
        case .cancel: throw error(.tlsRequired, "the client sent a cancel request without TLS")
        case .startup: throw error(.tlsRequired, "the client started a session without TLS", reply: PostgreSQL.tlsRequired)
        case .ssl, .gssEncryption, nil: throw unexpected(input.text)
        }
    }
}

enum PostgreSQL {
    /// The codes of messages without a type, the first ones on a connection.
    enum Request: Int {
        case startup = 196_608
        case cancel = 80_877_102
        case ssl = 80_877_103
        case gssEncryption = 80_877_104
    }

    static func message(_ request: Request) -> [UInt8] {
        [0, 0, 0, 8] + [UInt8](bigEndian: request.rawValue, bytes: 4)
    }

    /// An ErrorResponse with the SQLSTATE invalid_authorization_specification.
    static let tlsRequired: [UInt8] = {
        let fields = Array("SFATAL\0VFATAL\0C28000\0MTLS is required\0\0".utf8)
        return [UInt8(ascii: "E")] + [UInt8](bigEndian: fields.count + 4, bytes: 4) + fields
    }()
}

extension ArraySlice<UInt8> {
    /// Returns the unsigned integer in the first bytes, in network byte order. `nil` if there are fewer.
    func integer(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reduce(0) { $0 << 8 | Int($1) }
    }

    /// Returns the unsigned integer in the first bytes, in little-endian byte order.
    func littleEndian(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reversed().reduce(0) { $0 << 8 | Int($1) }
    }
}

extension [UInt8] {
    init(bigEndian value: Int, bytes count: Int) {
        self = (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }

    init(littleEndian value: Int, bytes count: Int) {
        self = (0..<count).map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }
}

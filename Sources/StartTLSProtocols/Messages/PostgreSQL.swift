/// The client side of PostgreSQL (its documentation, "Message Flow", "SSL Session Encryption").
struct PostgreSQLClient: ProtocolSide {
    /// Whether the ClientHello is the client's first message (PostgreSQL 17).
    let isDirect: Bool

    var name: String { "PostgreSQL" }
    var isClient: Bool { true }

    mutating func start() -> DialogueAction {
        isDirect ? .startTLS([]) : .send(PostgreSQL.sslRequest)
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        switch input.rest.first {
        case UInt8(ascii: "S"):
            _ = input.take(1)
            return .startTLS([])
        case UInt8(ascii: "N"): throw notOffered("N")
        // An ErrorResponse from a server that does not recognize the request.
        case UInt8(ascii: "E"):
            guard let text = Self.errorText(input) else { return nil }
            throw refused(text)
        default: throw unexpected(input.text)
        }
    }

    /// Returns the readable part of an ErrorResponse, or `nil` if it is incomplete.
    private static func errorText(_ input: MessageInput) -> String? {
        let bytes = input.rest.dropFirst()
        guard let length = bytes.bigEndian(bytes: 4) else { return nil }
        // Servers of protocol 2.0 send text instead of a length.
        guard (4...8192).contains(length) else { return input.text }
        guard bytes.count >= length else { return nil }
        let fields = bytes.dropFirst(4).prefix(length - 4).split(separator: 0)
        let message = fields.first { $0.first == UInt8(ascii: "M") } ?? fields.first ?? []
        return String(decoding: message.dropFirst(), as: UTF8.self)
    }
}

/// The server side of PostgreSQL. A client that continues without TLS is rejected.
struct PostgreSQLServer: ProtocolSide {
    /// Whether the client may start with its ClientHello.
    let acceptsDirectTLS: Bool

    var name: String { "PostgreSQL" }
    var isClient: Bool { false }

    func quotablePart(of message: String) -> String? { nil }

    /// A client sends nothing before the reply to its request.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { false }

    func isTLS(_ rest: ArraySlice<UInt8>) -> Bool {
        !acceptsDirectTLS && rest.starts(with: [MessageInput.handshakeRecord, MessageInput.recordVersion])
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        if acceptsDirectTLS, input.rest.first == MessageInput.handshakeRecord { return .startTLSImmediately([]) }
        guard let length = input.rest.bigEndian(bytes: 4), let code = input.rest.dropFirst(4).bigEndian(bytes: 4) else {
            return nil
        }
        guard (8...10_000).contains(length) else { throw unexpected(input.text) }
        switch PostgreSQL.Request(code: code) {
        case .ssl where length == 8:
            _ = input.take(8)
            return .startTLS([UInt8(ascii: "S")])
        case .gssEncryption where length == 8:
            _ = input.take(8)
            return .send([UInt8(ascii: "N")])
        // A cancel request contains a secret key, which was sent in plaintext.
        case .cancel: throw error(.tlsRequired, "the client sent a cancel request without TLS")
        case .startup: throw error(.tlsRequired, "the client started a session without TLS", reply: PostgreSQL.tlsRequired)
        case .ssl, .gssEncryption, nil: throw unexpected(input.text)
        }
    }
}

enum PostgreSQL {
    /// The untyped messages that can start a connection.
    enum Request {
        case startup
        case cancel
        case ssl
        case gssEncryption

        init?(code: Int) {
            switch code {
            case 80_877_102: self = .cancel
            case 80_877_103: self = .ssl
            case 80_877_104: self = .gssEncryption
            // The major version of the protocol.
            case _ where (1...9).contains(code >> 16): self = .startup
            default: return nil
            }
        }
    }

    /// An SSLRequest.
    static let sslRequest: [UInt8] = [0, 0, 0, 8] + [UInt8](bigEndian: 80_877_103, bytes: 4)

    /// An ErrorResponse with the SQLSTATE invalid_authorization_specification.
    static let tlsRequired: [UInt8] = {
        let fields = Array("SFATAL\0VFATAL\0C28000\0MTLS is required\0\0".utf8)
        return [UInt8(ascii: "E")] + [UInt8](bigEndian: fields.count + 4, bytes: 4) + fields
    }()
}

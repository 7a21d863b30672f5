/// One side of one protocol's dialogue: a state machine over whole messages.
protocol Conversation: Sendable {
    /// The name of the protocol.
    var name: String { get }
    var isClient: Bool { get }
    /// Whether a server's client may start TLS with its first byte.
    var acceptsDirectTLS: Bool { get }
    /// A server's reply to a client that exceeds the limit.
    var farewell: [UInt8] { get }

    /// Returns the first action.
    mutating func start() throws(StartTLSError) -> ConversationAction
    /// Removes one message from `input`, which is not empty, and returns the action. Returns `nil` if the
    /// message is incomplete.
    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction?
    /// Whether `rest` may arrive before this side's next message.
    func allows(following rest: ArraySlice<UInt8>) -> Bool
}

enum ConversationAction {
    /// Send these bytes, if any, and continue.
    case send([UInt8])
    /// Send these bytes, then start TLS.
    case startTLS([UInt8])
    /// Send these bytes, then start TLS. The client does not wait before its ClientHello.
    case startTLSImmediately([UInt8])

    static let `continue` = Self.send([])

    static func line(_ text: String) -> Self { .send([UInt8](line: text)) }
    static func lines(_ lines: [String]) -> Self { .send(lines.flatMap { [UInt8](line: $0) }) }
}

extension Conversation {
    var acceptsDirectTLS: Bool { false }
    var farewell: [UInt8] { [] }
    var peer: String { isClient ? "server" : "client" }

    /// Clients may send several commands together. Servers send nothing before the next command.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { !isClient }

    // MARK: - Errors

    func error(
        _ code: StartTLSError.Code, _ message: String, line: String? = nil, reply: [UInt8] = []
    ) -> StartTLSError {
        StartTLSError(code, name: name, message, line: line, reply: reply)
    }

    func injected(_ count: Int) -> StartTLSError {
        StartTLSError(
            .injected, name: name,
            "\(count) \(count == 1 ? "byte" : "bytes") arrived too early: an injection attack, or a \(peer) that violates the protocol",
            injectedByteCount: count)
    }

    func unexpected(_ line: String, reply: [UInt8] = []) -> StartTLSError {
        error(.unexpectedMessage, "the \(peer) sent an unexpected message", line: line, reply: reply)
    }

    func refused(_ line: String) -> StartTLSError {
        error(.refused, "the server refused to start TLS", line: line)
    }

    func refusedConnection(_ line: String) -> StartTLSError {
        error(.refused, "the server refused the connection", line: line)
    }

    func notOffered(_ line: String? = nil) -> StartTLSError {
        error(.notOffered, "the server does not offer STARTTLS, or an attacker removed the offer", line: line)
    }

    /// The client logs out or closes the stream.
    func quit(_ line: String, reply: String? = nil) -> StartTLSError {
        error(.closed, "the client logged out before TLS started", line: line, reply: reply.map { [UInt8](line: $0) } ?? [])
    }

    /// Checks a parameter that is sent in a line.
    func check(_ value: String, _ parameter: String, allowsSpaces: Bool = true) throws(StartTLSError) {
        let isValid = value.unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 && (allowsSpaces || $0 != " ") }
        guard isValid, !value.isEmpty, value.utf8.count <= 500 else {
            throw error(
                .invalidParameter,
                "\(parameter) must have 1 to 500 bytes, without control characters\(allowsSpaces ? "" : " and spaces")",
                line: value)
        }
    }
}

extension [UInt8] {
    init(line: String) {
        self = Array(line.utf8) + [13, 10]
    }
}

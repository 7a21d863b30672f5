/// One side of one protocol's dialogue: a state machine over whole messages.
protocol ProtocolSide: Sendable {
    /// The name of the protocol.
    var name: String { get }
    var isClient: Bool { get }
    /// A server's reply to a client that exceeds the limit.
    var farewell: [UInt8] { get }

    /// Checks the parameters.
    func validate() throws(StartTLSError)
    /// Returns the first action.
    mutating func start() -> DialogueAction
    /// Removes one message from `input`, which is not empty, and returns the action. Returns `nil` if the
    /// message is incomplete.
    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction?
    /// Whether `rest` may arrive before this side's next message.
    func allows(following rest: ArraySlice<UInt8>) -> Bool
    /// The part of the peer's message that errors may quote. Clients send passwords.
    func quotablePart(of message: String) -> String?
    /// Whether `rest` starts with a TLS record instead of a message, and TLS is not allowed yet.
    func isTLS(_ rest: ArraySlice<UInt8>) -> Bool
}

enum DialogueAction {
    /// Send these bytes, if any, and continue.
    case send([UInt8])
    /// Send these bytes, then start TLS.
    case startTLS([UInt8])
    /// Send these bytes, then start TLS. The ClientHello may already have been received.
    case startTLSImmediately([UInt8])

    static let `continue` = Self.send([])

    static func line(_ text: String) -> Self { .send([UInt8](line: text)) }
    static func lines(_ lines: [String]) -> Self { .send(lines.flatMap { [UInt8](line: $0) }) }
}

extension ProtocolSide {
    var farewell: [UInt8] { [] }
    var peer: String { isClient ? "server" : "client" }

    func validate() throws(StartTLSError) {}

    mutating func start() -> DialogueAction { .continue }

    /// Clients may pipeline commands. Servers send nothing until the next command.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { !isClient }

    func isTLS(_ rest: ArraySlice<UInt8>) -> Bool {
        rest.starts(with: [isClient ? MessageInput.alertRecord : MessageInput.handshakeRecord, MessageInput.recordVersion])
    }

    func quotablePart(of message: String) -> String? { isClient ? message : message.words.first }

    // MARK: - Errors

    func error(
        _ code: StartTLSError.Code, _ message: String, line: String? = nil, reply: [UInt8] = []
    ) -> StartTLSError {
        StartTLSError(code, name: name, message, line: line.flatMap { quotablePart(of: $0) }, reply: reply)
    }

    func tooLong() -> StartTLSError {
        error(.tooLong, "the \(peer) exceeded the limit of \(MessageInput.limit) bytes before TLS", reply: farewell)
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
        var error = error(.refused, "the server refused the connection", line: line)
        error.refusesConnection = true
        return error
    }

    func notOffered(_ line: String? = nil) -> StartTLSError {
        error(.notOffered, "the server does not offer TLS, or an attacker removed the offer", line: line)
    }

    /// Returns the error for a client that logs out or closes the stream.
    func loggedOut(_ line: String, reply: String) -> StartTLSError {
        error(.closed, "the client logged out before TLS started", line: line, reply: [UInt8](line: reply))
    }

    // MARK: - Parameters

    /// Checks a parameter that is sent in a line.
    func check(_ value: String, _ parameter: String, allowsSpaces: Bool = true) throws(StartTLSError) {
        let isValid = value.unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 && (allowsSpaces || $0 != " ") }
        guard isValid, !value.isEmpty, value.utf8.count <= 500 else {
            throw error(
                .invalidParameter,
                "\(parameter) must be 1 to 500 bytes long, without control characters\(allowsSpaces ? "" : " or spaces")")
        }
    }

    func check(_ value: String, _ parameter: String, excludes characters: String) throws(StartTLSError) {
        guard value.utf8.allSatisfy({ !characters.utf8.contains($0) }) else {
            throw error(
                .invalidParameter, "\(parameter) must not contain \(characters.map { "\($0)" }.joined(separator: " or "))")
        }
    }
}

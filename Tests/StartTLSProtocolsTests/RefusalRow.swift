import StartTLSProtocols
import Testing

/// A row of a negative table: a message that must not start TLS, the state of the dialogue when it arrives,
/// and the expected result.
struct RefusalRow: Sendable, CustomTestStringConvertible {
    enum Expected: Sendable {
        /// The dialogue fails, and its reply contains the text. If the text is empty, nothing is sent.
        case fails(StartTLSError.Code, sending: String = "")
        /// The dialogue continues, and its reply contains the text.
        case sends(String)
        /// The message is incomplete, or is skipped. Nothing is sent.
        case waits

        static let refused = Self.fails(.refused)
        static let notOffered = Self.fails(.notOffered)
        static let unexpected = Self.fails(.unexpectedMessage)
        static let tooLong = Self.fails(.tooLong)
        static let unexpectedTLS = Self.fails(.unexpectedTLS)
    }

    typealias Dialogue = @Sendable () throws -> StartTLSDialogue

    let state: String
    let dialogue: Dialogue
    /// What the peer sends before the message, to reach the state.
    let turns: [[UInt8]]
    let message: [UInt8]
    let expected: Expected

    var testDescription: String {
        let text = String(decoding: message.prefix(100), as: UTF8.self).debugDescription
        return "\(state): \(text)\(message.count > 100 ? "… (\(message.count) bytes)" : "")"
    }

    /// Checks the result of the message as a whole, in single bytes, and in two parts.
    func check() throws {
        for segments in splits(of: message) {
            var dialogue = try dialogue()
            _ = dialogue.start()
            for turn in turns {
                guard case .send = try dialogue.receive(turn) else { Issue.record("TLS started too early"); return }
            }
            let result = dialogue.result(of: segments)
            let isExpected = isExpected(result)
            #expect(isExpected, "\(result), received in pieces of \(segments.map(\.count).prefix(20)) bytes")
            if !isExpected { return }
        }
    }

    private func isExpected(_ result: SplitResult) -> Bool {
        guard !result.startsTLS else { return false }
        let sent = String(decoding: result.sent, as: UTF8.self)
        return switch expected {
        case .fails(let code, let text): result.code == code && (text.isEmpty ? sent.isEmpty : sent.contains(text))
        case .sends(let text): result.code == nil && sent.contains(text)
        case .waits: result.code == nil && sent.isEmpty
        }
    }
}

extension RefusalRow {
    /// The rows of one state of a client. Each key is a message without its last CR LF.
    static func client(
        _ state: String, _ protocol: StartTLSClient, after turns: [String] = [], lines: KeyValuePairs<String, Expected>
    ) -> [Self] {
        let messages = lines.map { (Array("\($0.key)\r\n".utf8), $0.value) }
        return client(state, `protocol`, after: turns.map { Array($0.utf8) }, messages: messages)
    }

    /// The rows of one state of a client. Each key is a text that is received as it is.
    static func client(
        _ state: String, _ protocol: StartTLSClient, after turns: [String] = [], text: KeyValuePairs<String, Expected>
    ) -> [Self] {
        client(
            state, `protocol`, after: turns.map { Array($0.utf8) }, messages: text.map { (Array($0.key.utf8), $0.value) })
    }

    /// The rows of one state of a client. Each key is a message.
    static func client(
        _ state: String, _ protocol: StartTLSClient, after turns: [[UInt8]] = [], messages: [(key: [UInt8], value: Expected)]
    ) -> [Self] {
        messages.map { message in
            Self(
                state: state, dialogue: { try StartTLSDialogue(client: `protocol`) }, turns: turns, message: message.key,
                expected: message.value)
        }
    }

    /// The rows of one state of a server. Each key is a message without its last CR LF.
    static func server(_ state: String, _ protocol: StartTLSServer, lines: KeyValuePairs<String, Expected>) -> [Self] {
        server(state, `protocol`, messages: lines.map { (Array("\($0.key)\r\n".utf8), $0.value) })
    }

    /// The rows of one state of a server. Each key is a text that is received as it is.
    static func server(
        _ state: String, _ protocol: StartTLSServer, after turns: [String] = [], text: KeyValuePairs<String, Expected>
    ) -> [Self] {
        server(
            state, `protocol`, after: turns.map { Array($0.utf8) }, messages: text.map { (Array($0.key.utf8), $0.value) })
    }

    /// The rows of one state of a server. Each key is a message.
    static func server(
        _ state: String, _ protocol: StartTLSServer, after turns: [[UInt8]] = [], messages: [(key: [UInt8], value: Expected)]
    ) -> [Self] {
        messages.map { message in
            Self(
                state: state, dialogue: { try StartTLSDialogue(server: `protocol`) }, turns: turns, message: message.key,
                expected: message.value)
        }
    }
}

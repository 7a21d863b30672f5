import AsyncSockets
import Foundation

/// A conversation with an IMAP server (RFC 3501): commands with tags, and responses with literals.
struct Conversation {
    let socket: AsyncSocket
    private var commandCount = 0

    init(_ socket: AsyncSocket) {
        self.socket = socket
    }

    /// One response: its text, and the literals that lines of it announce.
    struct Response {
        var text = ""
        var literals: [Data] = []
    }

    /// Sends a command, and returns the responses to it. Throws unless the server says OK.
    @discardableResult
    mutating func say(_ command: String) async throws -> [Response] {
        commandCount += 1
        let tag = "a\(commandCount)"
        try await socket.write("\(tag) \(command)\r\n")
        var responses: [Response] = []
        while true {
            let response = try await readResponse()
            guard response.text.hasPrefix("\(tag) ") else {
                responses.append(response)
                continue
            }
            guard response.text.hasPrefix("\(tag) OK") else { throw ConversationError("the server says: \(response.text)") }
            return responses
        }
    }

    /// A line, and what it announces: a line that ends with {5} goes on after a literal of five bytes
    /// (section 4.3).
    func readResponse() async throws -> Response {
        var response = Response()
        while let line = try await socket.readLine() {
            response.text += line
            guard let length = line.wholeMatch(of: /.*\{([0-9]+)\}/)?.1 else { return response }
            guard let count = Int(length), count <= 1 << 20, response.literals.count < 100 else {
                throw ConversationError("the server's response is too long")
            }
            response.literals.append(try await socket.read(exactly: count))
        }
        throw ConversationError("the server has ended the conversation")
    }
}

/// Why the conversation cannot go on.
struct ConversationError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

extension String {
    /// The text as a quoted string (RFC 3501, section 4.3). Throws for what could end its line.
    func quoted() throws -> String {
        guard utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else {
            throw ConversationError("a name or a password has other characters than printable ASCII")
        }
        return "\"" + replacing(/["\\]/) { "\\" + $0.output } + "\""
    }
}

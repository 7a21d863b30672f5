import AsyncSockets
import Foundation

/// An IMAP session (RFC 3501): tagged commands, and responses with literals.
struct Conversation {
    let socket: AsyncSocket
    private var commandCount = 0

    init(_ socket: AsyncSocket) {
        self.socket = socket
    }

    /// A response: its text, and the literals announced in the text.
    struct Response {
        var text = ""
        var literals: [Data] = []
    }

    /// Sends a command and returns its responses. Throws unless the command completes with OK.
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

    /// Reads a response with its literals. A line that ends with {5} is followed by a literal of five bytes
    /// and the rest of the response (section 4.3).
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
        throw ConversationError("the server closed the connection")
    }
}

/// An error in the exchange with the server.
struct ConversationError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

extension String {
    /// Returns the text as a quoted string (RFC 3501, section 4.3). Throws if it contains anything but
    /// printable ASCII, such as a line break.
    func quoted() throws -> String {
        guard utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else {
            throw ConversationError("the user name, password or mailbox contains characters that are not printable ASCII")
        }
        return "\"" + replacing(/["\\]/) { "\\" + $0.output } + "\""
    }
}

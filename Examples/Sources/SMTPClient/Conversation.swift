import AsyncSockets

// Article: replies
/// A conversation with a mail server: one command, one reply (RFC 5321).
struct Conversation {
    let socket: AsyncSocket

    /// Reads a reply, which has to begin with `code`, and returns its lines.
    @discardableResult
    func expect(_ code: String) async throws -> [String] {
        var lines: [String] = []
        repeat {
            guard lines.count < 100, let line = try await socket.readLine(maxLength: 1_000) else {
                throw ConversationError("the server's reply is incomplete")
            }
            lines.append(line)
        } while lines.last?.dropFirst(3).first == "-"  // more lines follow (section 4.2.1)
        guard lines.last?.hasPrefix(code) == true else {
            throw ConversationError("the server says: \(lines.joined(separator: " / "))")
        }
        return lines
    }

    /// Sends a command, and reads the reply.
    @discardableResult
    func say(_ command: String, expecting code: String) async throws -> [String] {
        try await socket.write("\(command)\r\n")
        return try await expect(code)
    }
}
// Article: end

/// Why the conversation cannot go on.
struct ConversationError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

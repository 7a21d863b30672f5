import AsyncSockets
import Foundation

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

// Article: login
/// The user's name and password.
struct Login {
    let user: String
    let password: String
}

extension Conversation {
    /// AUTH PLAIN (RFC 4616), where the password itself is sent: only over a connection that is secure.
    func logIn(_ login: Login, offers: [String]) async throws {
        let methods = offers.map { $0.uppercased().dropFirst(4).split(separator: " ") }
        guard socket.isSecure, methods.contains(where: { $0.first == "AUTH" && $0.contains("PLAIN") }) else {
            throw ConversationError("the server offers no AUTH PLAIN")
        }
        let response = Data("\0\(login.user)\0\(login.password)".utf8).base64EncodedString()
        try await say("AUTH PLAIN \(response)", expecting: "235")
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

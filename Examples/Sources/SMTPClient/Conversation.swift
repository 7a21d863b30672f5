import AsyncSockets
import Foundation

// Article: replies
/// An SMTP session (RFC 5321): each command gets one reply.
struct Conversation {
    let socket: AsyncSocket

    /// Reads a reply and returns its lines. Throws if it does not start with `code`.
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

    /// Sends a command and reads the reply.
    @discardableResult
    func say(_ command: String, expecting code: String) async throws -> [String] {
        try await socket.write("\(command)\r\n")
        return try await expect(code)
    }
}
// Article: end

// Article: login
struct Login {
    let user: String
    let password: String
}

extension Conversation {
    /// Logs in with AUTH PLAIN (RFC 4616), which sends the password itself and so requires a secure
    /// connection.
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

/// An error in the exchange with the server.
struct ConversationError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

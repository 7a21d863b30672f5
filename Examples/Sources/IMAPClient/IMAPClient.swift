// Lists the subjects in a mailbox over IMAP (RFC 3501) with STARTTLS, as a task.
//
//     swift run --package-path Examples imap-client imap.example.org 143 alice INBOX <password.txt
//
// The password is the first line of standard input. To trust a CA of your own, set SSL_CERT_FILE=ca.pem in
// the environment.

import AsyncSockets
import Foundation

@main
struct IMAPClient {
    let host: String
    let port: UInt16

    /// Returns the subjects in the mailbox. The password is never sent in plaintext.
    func subjects(in mailbox: String, of user: String, password: String) async throws -> [String] {
        try await AsyncSocket.withConnection(to: host, port: port) { socket in
            var server = Conversation(socket)
            try await socket.startTLS(as: .imap, settings: .client)
            try await server.say("LOGIN \(user.quoted()) \(password.quoted())")
            let facts = try await server.say("SELECT \(mailbox.quoted())")
            guard !facts.contains(where: { $0.text == "* 0 EXISTS" }) else { return [] }
            let responses = try await server.say("FETCH 1:* (BODY.PEEK[HEADER.FIELDS (SUBJECT)])")
            try await server.say("LOGOUT")
            return responses.flatMap(\.literals).map(subject)
        }
    }

    /// Returns the value of a header field, which may be folded over several lines (RFC 5322, section 2.2.3).
    private func subject(in header: Data) -> String {
        let line = String(decoding: header, as: UTF8.self).replacing(/\r\n(?=[ \t])/, with: "")
        return line.split(separator: ":", maxSplits: 1).last.map { $0.trimmingCharacters(in: .whitespacesAndNewlines) } ?? ""
    }

    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 5, let port = UInt16(arguments[2]), let password = readLine() else {
            complain("usage: imap-client HOST PORT USER MAILBOX <PASSWORD")
            exit(EX_USAGE)
        }
        let client = IMAPClient(host: arguments[1], port: port)
        do {
            let subjects = try await withDeadline(.seconds(60)) {
                try await client.subjects(in: arguments[4], of: arguments[3], password: password)
            }
            for subject in subjects { print(subject) }
        } catch {
            complain("\(error)")
            exit(EXIT_FAILURE)
        }
    }

    private static func complain(_ message: String) {
        FileHandle.standardError.write(Data("imap-client: \(message)\n".utf8))
    }
}

// Submits a mail over SMTP (RFC 5321) with STARTTLS (RFC 3207), as a task. The program mail-submission does
// the same with a delegate.
//
//     swift run --package-path Examples smtp-client mail.example.org 587 me@example.org you@example.org \
//         <letter.txt
//
// The letter consists of header lines, an empty line and the text, in UTF-8. To trust a CA of your own, set
// SSL_CERT_FILE=ca.pem in the environment. To log in, set SMTP_USER and SMTP_PASSWORD. Otherwise the server
// must accept mail from its own network.

import AsyncSockets
import Foundation

@main
struct SMTPClient {
    let host: String
    let port: UInt16
    let login: Login?

    // Article: submission
    /// Sends the mail. No part of it is sent in plaintext.
    func submit(_ mail: Mail) async throws {
        guard mail.hasUsableAddresses else { throw ConversationError("the sender or the recipient is not a mail address") }
        try await AsyncSocket.withConnection(to: host, port: port) { socket in
            let server = Conversation(socket: socket)
            // The address literal of this client, which may have no host name (RFC 5321, section 4.1.3).
            let name = "[\(socket.isIPv6 ? "IPv6:" : "")\(socket.localHost ?? "127.0.0.1")]"
            let session = try await socket.startTLS(as: .smtp(name: name), settings: .client)
            print("secure: \(session.protocolVersion), \(session.cipherSuite)")
            // The extensions in the reply to the first EHLO were received in plaintext, so send EHLO again.
            let offers = try await server.say("EHLO \(name)", expecting: "250")
            if let login { try await server.logIn(login, offers: offers) }
            try await server.say("MAIL FROM:<\(mail.sender)>", expecting: "250")
            try await server.say("RCPT TO:<\(mail.recipient)>", expecting: "25")
            try await server.say("DATA", expecting: "354")
            try await socket.write(Data(mail.letter.utf8), as: DotTerminated())
            try await server.expect("250")
            print("the server has accepted the mail")
            try await server.say("QUIT", expecting: "221")
        }
    }
    // Article: end

    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 5, let port = UInt16(arguments[2]) else {
            complain("usage: smtp-client HOST PORT SENDER RECIPIENT <LETTER")
            exit(EX_USAGE)
        }
        let letter = String(decoding: FileHandle.standardInput.readDataToEndOfFile(), as: UTF8.self)
        let environment = ProcessInfo.processInfo.environment
        let login = environment["SMTP_USER"].map { Login(user: $0, password: environment["SMTP_PASSWORD"] ?? "") }
        let mail = Mail(sender: arguments[3], recipient: arguments[4], letter: letter)
        do {
            // Article: deadline
            try await withDeadline(.seconds(300)) {
                try await SMTPClient(host: arguments[1], port: port, login: login).submit(mail)
            }
            // Article: end
        } catch {
            complain("\(error)")
            exit(EXIT_FAILURE)
        }
    }

    private static func complain(_ message: String) {
        FileHandle.standardError.write(Data("smtp-client: \(message)\n".utf8))
    }
}

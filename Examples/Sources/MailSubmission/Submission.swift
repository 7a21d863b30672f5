import AsyncSockets
import Dispatch
import Foundation

/// The SMTP session with the server. Exits the program when it is done.
final class Submission: AsyncSocketDelegate {
    /// The command whose reply is expected next.
    private enum Step: Int {
        case hello, sender, recipient, data, letter, goodbye

        /// The reply code that means success.
        var success: String {
            switch self {
            case .hello, .sender, .recipient, .letter: "250"
            case .data: "354"
            case .goodbye: "221"
            }
        }
    }

    private let socket = AsyncSocket()
    private let mail: Mail
    private let host: String
    private var answer: [String] = []
    private var isTaken = false

    init(_ mail: Mail, host: String) {
        self.mail = mail
        self.host = host
    }

    func start(onPort port: UInt16) throws {
        guard mail.hasUsableAddresses else {
            throw SubmissionError(description: "the sender or the recipient is not a mail address")
        }
        socket.setDelegate(self, delegateQueue: .main)
        try socket.connect(toHost: host, onPort: port, withTimeout: 30)
    }

    /// The upgrade includes the greeting, EHLO and STARTTLS. If the server does not offer STARTTLS, the
    /// connection closes, because an attacker may have removed the offer.
    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
        do {
            try socket.beginTLS(as: .smtp(name: name), settings: .client)
            // Sent over TLS. The extensions that the server listed in plaintext are ignored.
            say("EHLO \(name)", expecting: .hello)
        } catch {
            giveUp("startTLS: \(error)")
        }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        guard let step = Step(rawValue: tag) else { return }
        let line = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .newlines)
        answer.append(line)
        guard answer.count <= 100 else { giveUp("the server's reply is too long") }
        // A hyphen after the code means that more lines follow (RFC 5321, section 4.2.1).
        if line.dropFirst(3).first == "-" { return expect(step) }
        guard line.hasPrefix(step.success) else { giveUp("the server says: \(answer.joined(separator: " / "))") }
        answer = []
        proceed(after: step)
    }

    private func proceed(after step: Step) {
        switch step {
        case .hello: say("MAIL FROM:<\(mail.sender)>", expecting: .sender)
        case .sender: say("RCPT TO:<\(mail.recipient)>", expecting: .recipient)
        case .recipient: say("DATA", expecting: .data)
        case .data:
            socket.write(mail.transparentLetter, withTimeout: 300)
            expect(.letter)
        case .letter:
            isTaken = true
            say("QUIT", expecting: .goodbye)
        case .goodbye: socket.disconnect()
        }
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        if let session = socket.tlsSession { print("secure: \(session.protocolVersion), \(session.cipherSuite)") }
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        if isTaken {
            print("the server has accepted the mail")
            exit(EXIT_SUCCESS)
        }
        giveUp(error?.localizedDescription ?? "the server closed the connection")
    }

    /// The address literal of this client, which may have no host name (RFC 5321, section 4.1.3).
    private var name: String {
        let prefix = socket.isIPv6 ? "IPv6:" : ""
        return "[\(prefix)\(socket.localHost ?? "127.0.0.1")]"
    }

    private func say(_ line: String, expecting step: Step) {
        socket.write(Data("\(line)\r\n".utf8), withTimeout: 30)
        expect(step)
    }

    private func expect(_ step: Step) {
        socket.readData(to: AsyncSocket.crlf, withTimeout: 300, maxLength: 1_000, tag: step.rawValue)
    }

    private func giveUp(_ reason: String) -> Never {
        complain(reason)
        exit(EXIT_FAILURE)
    }
}

/// An error before the session starts.
struct SubmissionError: Error, CustomStringConvertible {
    let description: String
}

import CocoaAsyncSocket
import Foundation

let smtpErrorDomain = "SMTPErrorDomain"

/// Sends one mail over one connection. The completion handler is called once, on the main queue.
final class SMTPClient: NSObject {
    /// The command whose reply is expected next, used as the tag of the read.
    private enum Step: Int {
        case greeting = 100
        case hello
        case startTLS
        case secureHello
        case sender
        case recipient
        case data
        case letter
        case quit
    }

    private let host: String
    private let port: UInt16
    private var socket: GCDAsyncSocket?
    private var reply: [String] = []
    private var letter = Data()
    private var sender = ""
    private var recipient = ""
    private var failure: NSError?
    /// The server has accepted the letter, so it no longer matters how the connection ends.
    private var isTaken = false
    private var completion: ((Error?) -> Void)?

    init(host: String, port: UInt16) {
        self.host = host
        self.port = port
        super.init()
    }

    func send(_ letter: Data, from sender: String, to recipient: String, completion: @escaping (Error?) -> Void) {
        self.letter = letter
        self.sender = sender
        self.recipient = recipient
        self.completion = completion
        guard isAddress(sender), isAddress(recipient) else {
            return end(with: error("the sender or the recipient is not a mail address"))
        }
        let socket = GCDAsyncSocket(delegate: self, delegateQueue: DispatchQueue.main)
        self.socket = socket
        do {
            try socket.connect(toHost: host, onPort: port, withTimeout: 30)
        } catch {
            end(with: error)
        }
    }

    private func end(with error: Error?) {
        completion?(error)
        completion = nil
    }

    /// Other characters could inject another command.
    private func isAddress(_ text: String) -> Bool {
        return text.contains("@") && text.unicodeScalars.allSatisfy { $0.value > 32 && $0.value < 127 && $0 != "<" && $0 != ">" }
    }

    private func error(_ reason: String, code: Int = 0) -> NSError {
        return NSError(domain: smtpErrorDomain, code: code, userInfo: [NSLocalizedDescriptionKey: reason])
    }

    private func fail(_ reason: String, code: Int = 0) {
        failure = error(reason, code: code)
        socket?.disconnect()
    }

    private func readReply(to step: Step) {
        socket?.readData(to: GCDAsyncSocket.crlfData(), withTimeout: 60, maxLength: 1000, tag: step.rawValue)
    }

    private func command(_ line: String, _ step: Step) {
        socket?.write((line + "\r\n").data(using: .ascii), withTimeout: 60, tag: step.rawValue)
        readReply(to: step)
    }

    private func replied(to step: Step, code: Int) {
        guard code < 400 else { return fail("the server said: \(reply.joined(separator: " / "))", code: code) }
        switch step {
        case .greeting: command("EHLO localhost", .hello)
        case .hello:
            guard reply.contains(where: { $0.dropFirst(4).uppercased() == "STARTTLS" }) else {
                return fail("the server offers no STARTTLS")
            }
            command("STARTTLS", .startTLS)
        case .startTLS:
            socket?.startTLS([kCFStreamSSLPeerName as String: host as NSString])
            command("EHLO localhost", .secureHello)
        case .secureHello: command("MAIL FROM:<\(sender)>", .sender)
        case .sender: command("RCPT TO:<\(recipient)>", .recipient)
        case .recipient: command("DATA", .data)
        case .data:
            socket?.write(stuffed(letter), withTimeout: 300, tag: Step.letter.rawValue)
            readReply(to: .letter)
        case .letter:
            isTaken = true
            command("QUIT", .quit)
        case .quit: socket?.disconnectAfterReadingAndWriting()
        }
    }

    /// The letter with CRLF line endings, dot-stuffed and terminated by a dot.
    private func stuffed(_ letter: Data) -> Data {
        var result = Data()
        var lines = letter.split(separator: 10, omittingEmptySubsequences: false)
        if let last = lines.last, last.isEmpty { lines.removeLast() }
        for line in lines {
            if line.first == UInt8(ascii: ".") { result.append(UInt8(ascii: ".")) }
            result.append(line)
            result.append(GCDAsyncSocket.crlfData())
        }
        result.append(Data(".\r\n".utf8))
        return result
    }
}

extension SMTPClient: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        readReply(to: .greeting)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        guard let step = Step(rawValue: tag) else { return }
        let line = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
        guard line.count >= 3, let code = Int(line.prefix(3)) else { return fail("this is not SMTP: \(line)") }
        reply.append(line)
        if line.dropFirst(3).first == "-" { return readReply(to: step) }
        replied(to: step, code: code)
        reply = []
    }

    func socketDidSecure(_ sock: GCDAsyncSocket) {
        print("secure: \(sock.isSecure)")
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        if let failure = failure, !isTaken { return end(with: failure) }
        end(with: isTaken ? nil : err)
    }
}

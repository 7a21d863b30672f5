import Testing

@testable import SockcatCommands

/// What `listen --mail` replies to each line, without a connection.
@Suite struct MailSessionTests {
    /// Returns the first word of the last line of each reply. "-" stands for no reply, and a dot marks the
    /// last reply.
    private static func replies(of session: some MailSession, to lines: [String]) -> String {
        var session = session
        return lines.map { line in
            let reply = session.receive(MailLine(line.utf8))
            return (reply.lines.last?.prefix { $0 != " " } ?? "-") + (reply.isLast ? "." : "")
        }.joined(separator: " ")
    }

    @Test(arguments: [
        (["EHLO c", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "DATA", "", "..", ".", "QUIT"], "250 250 250 354 - - 250 221."),
        (["HELO c", "mail from:<a@b>", "rcpt to:<c@d>", "data", "MAIL FROM:<x@y>", "."], "250 250 250 354 - 250"),
        (["MAIL FROM:<a@b>", "RCPT TO:<c@d>", "DATA", "RSET", "MAIL FROM:<a@b>"], "503 503 503 250 503"),
        (["EHLO c", "RCPT TO:<c@d>", "MAIL FROM:<a@b>", "DATA", "MAIL FROM:<a@b>"], "250 503 250 503 503"),
        (["EHLO c", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "RSET", "RCPT TO:<c@d>"], "250 250 250 250 503"),
        (["EHLO c", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "EHLO c", "DATA"], "250 250 250 250 503"),
        (["EHLO", "LHLO c", "NOOP", "VRFY x", "AUTH PLAIN x", "STARTTLS", "EXPN x", ""], "501 500 250 252 502 503 500 500"),
        (["EHLO c", "MAIL a@b", "MAIL FROM:<>", "RCPT <c@d>", "DATA x"], "250 501 250 501 501"),
        (["BDAT 86 LAST"], "502."),
        // Characters that other servers may take for the end of a line.
        (["NOOP\u{0}", "NOOP\nQUIT", "QUIT\r", "\u{7F}"], "500 500 500 500"),
    ])
    func smtp(lines: [String], expected: String) {
        #expect(Self.replies(of: SMTPSession(isLMTP: false, name: "mail.example.org"), to: lines) == expected)
    }

    /// SMTP smuggling: a message is not terminated by a dot between bare CR or LF.
    @Test(arguments: ["\n.", ".\n", "\r.", ".\r", "text\n.\nMAIL FROM:<evil@b>", ". "]) func aDotThatIsNoLine(line: String) {
        let lines = ["EHLO c", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "DATA", line, "RSET", "."]
        let session = SMTPSession(isLMTP: false, name: "mail.example.org")
        #expect(Self.replies(of: session, to: lines) == "250 250 250 354 - - 250")
    }

    @Test func eachRecipientOfLMTPHasAReply() {
        var session = SMTPSession(isLMTP: true, name: "mail.example.org")
        #expect(session.receive(MailLine("EHLO c".utf8)).lines.first?.hasPrefix("500") == true)
        for line in ["LHLO c", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "RCPT TO:<e@f>", "DATA"] {
            _ = session.receive(MailLine(line.utf8))
        }
        #expect(session.receive(MailLine(".".utf8)).lines.count == 2)
        #expect(!session.isInMessage)
    }

    @Test func messagesAndRecipientsAreLimited() {
        var session = SMTPSession(isLMTP: false, name: "mail.example.org")
        for line in ["EHLO c", "MAIL FROM:<a@b>"] { _ = session.receive(MailLine(line.utf8)) }
        for _ in 0..<SMTPSession.maximumRecipients {
            #expect(session.receive(MailLine("RCPT TO:<c@d>".utf8)) == .line("250 2.1.5 OK"))
        }
        #expect(session.receive(MailLine("RCPT TO:<c@d>".utf8)).lines.first?.hasPrefix("452") == true)
        _ = session.receive(MailLine("DATA".utf8))
        let line = MailLine([UInt8](repeating: UInt8(ascii: "x"), count: 65_534))
        for _ in 0..<(SMTPSession.maximumMessageBytes / 65_536) { #expect(session.receive(line) == .none) }
        #expect(session.receive(MailLine([])) == .last("552 5.3.4 The message is too large"))
    }

    @Test(arguments: [
        ("a CAPABILITY", "a OK CAPABILITY completed"), ("a noop", "a OK NOOP completed"), ("b ID NIL", "b OK ID completed"),
        ("a LOGIN u p", "a NO This server has no users"), ("a STARTTLS", "a BAD TLS has already started"),
        ("a SELECT inbox", "a BAD Log in first"), ("NOOP", "* BAD A tag and a command are expected"),
        ("a* NOOP", "* BAD A tag and a command are expected"), ("\u{1B}[2J NOOP", "* BAD A tag and a command are expected"),
        ("a NOOP\nb LOGOUT", "* BAD A tag and a command are expected"),
    ])
    func imap(line: String, expected: String) {
        var session = IMAPSession()
        let reply = session.receive(MailLine(line.utf8))
        #expect(reply.lines.last == expected && !reply.isLast)
    }

    @Test func imapEnds() {
        #expect(Self.replies(of: IMAPSession(), to: ["a LOGOUT"]) == "a.")
        // The five bytes would be mistaken for a command.
        #expect(Self.replies(of: IMAPSession(), to: ["a LOGIN {5}"]) == "*.")
    }

    @Test func pop3() {
        let lines = ["CAPA", "USER u", "PASS p", "STLS", "LIST", "", "quit"]
        #expect(Self.replies(of: POP3Session(), to: lines) == ". -ERR -ERR -ERR -ERR -ERR +OK.")
    }

    // MARK: - Printed lines

    @Test(arguments: [
        ("PASS secret", "PASS …"), ("a LOGIN u secret", "a LOGIN …"), ("AUTH PLAIN c2VjcmV0", "AUTH …"),
        ("b authenticate PLAIN c2VjcmV0", "b authenticate …"), ("apop u secret", "apop …"), ("EHLO c", "EHLO c"),
        ("\u{202E}EHLO c", "\u{FFFD}EHLO …"), ("XAUTH PLAIN c2VjcmV0", "XAUTH …"), ("ID LOGIN u secret", "ID LOGIN …"),
        ("PASS\tsecret", "a line with control characters"), ("NOOP\nAUTH PLAIN c2VjcmV0", "a line with control characters"),
        ("AUTH\0PLAIN c2VjcmV0", "a line with control characters"),
    ])
    func passwordsAreNotPrinted(line: String, expected: String) {
        #expect(Self.printed([line]) == [expected])
    }

    /// A client may send the next lines before it has received the refusal.
    @Test func linesAfterALoginAreNotPrinted() {
        #expect(Self.printed(["AUTH LOGIN", "bWU=", "c2VjcmV0 cHc=", "QUIT", "x y"]) == ["AUTH …", "…", "…", "QUIT", "x …"])
        #expect(Self.printed(["a LOGIN", "u secret", "b LOGOUT"]) == ["a LOGIN …", "…", "b LOGOUT"])
    }

    @Test func linesAreCut() {
        let word = String(repeating: "x", count: 1001)
        let cut = word.dropLast() + "…"
        #expect(Self.printed(["\(word) x", "\(word) PASS x"]) == ["\(cut) …", "\(cut) …"])
        var log = MailLog()
        #expect(log.text(of: MailLine("PASS the salt".utf8), isInMessage: true).text == "PASS the salt")
        #expect(log.text(of: MailLine("a\tb\u{1B}[2J".utf8), isInMessage: true).text == "a b\u{FFFD}[2J")
        #expect(log.text(of: MailLine(word.utf8), isInMessage: true).text == cut)
    }

    private static func printed(_ lines: [String]) -> [String] {
        var log = MailLog()
        return lines.map { log.text(of: MailLine($0.utf8), isInMessage: false).text }
    }
}

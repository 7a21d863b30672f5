import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `listen --mail` and the mail clients of curl and Python.
@Suite(.timeLimit(.minutes(3))) struct MailTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        try folder.issue(.server(names: ["*.example.org", "localhost"]), by: CertificateAuthority(), to: "server")
    }

    private func server(_ name: String, _ options: String = "") async throws -> SockcatServer {
        try await SockcatServer(
            "listen --mail --starttls \(name) --cert server.pem --key server.key \(options) localhost:0", in: folder,
            output: "printed")
    }

    /// Runs a client and returns its output, in which "< " precedes replies of the server.
    private func curl(_ name: String, _ server: SockcatServer, _ options: String) async throws -> SockcatProcess.Outcome {
        try await SockcatProcess.shell(
            "curl --silent --verbose --max-time 60 --ssl-reqd --cacert ca.pem \(name)://localhost:\(server.port) \(options) 2>&1",
            in: folder)
    }

    @Test func curlSendsAMessage() async throws {
        let server = try await server("smtp")
        try folder.write("Subject: \u{1B}[2Jtest\r\n\r\n.dot\r\n", to: "letter")
        let outcome = try await curl("smtp", server, "--mail-from a@b.example --mail-rcpt c@d.example --upload-file letter")
        #expect(outcome.status == 0, "\(outcome)")
        #expect(outcome.output.contains("< 220 localhost ESMTP sockcat"))
        #expect(outcome.output.contains("< 250 2.0.0 Accepted and discarded"))
        #expect(await server.stop() == 0)
        // The bytes of each line after the client's address.
        let printed = try folder.text("printed").utf8.split(separator: 10).map {
            String(decoding: $0.drop { $0 != 32 }.dropFirst(), as: UTF8.self)
        }
        let envelope = ["MAIL FROM:<a@b.example> SIZE=27", "RCPT TO:<c@d.example>", "DATA"]
        #expect(Array(printed.dropFirst().prefix(7)) == envelope + ["Subject: \u{FFFD}[2Jtest", "", "..dot", "."], "\(printed)")
    }

    @Test(arguments: [("imap", "< A004 OK CAPABILITY completed", "-X CAPABILITY"), ("pop3", "< -ERR Log in first", "")])
    func curlReceivesReplies(name: String, reply: String, options: String) async throws {
        let server = try await server(name)
        let outcome = try await curl(name, server, options)
        #expect(outcome.output.contains(reply), "\(outcome)")
        #expect(await server.stop() == 0)
    }

    @Test(arguments: [
        (
            "smtp",
            """
            import smtplib, ssl
            client = smtplib.SMTP("localhost", PORT)
            client.starttls(context=ssl.create_default_context(cafile="ca.pem"))
            client.sendmail("a@b.example", ["c@d.example", "e@f.example"], "Subject: x\\r\\n\\r\\n.\\r\\ntext")
            print(client.esmtp_features["size"], client.quit()[0])
            """, "10485760 221"
        ),
        (
            "imap",
            """
            import imaplib, ssl
            client = imaplib.IMAP4("localhost", PORT)
            client.starttls(ssl.create_default_context(cafile="ca.pem"))
            print(client.capability()[1], client.noop()[0], client.logout()[0])
            """, "[b'IMAP4rev1 LOGINDISABLED'] OK BYE"
        ),
        (
            "pop3",
            """
            import poplib, ssl
            client = poplib.POP3("localhost", PORT)
            client.stls(ssl.create_default_context(cafile="ca.pem"))
            print(client.capa(), client.quit())
            """, "{'PIPELINING': []} b'+OK Bye'"
        ),
    ]) func pythonReceivesReplies(name: String, script: String, expected: String) async throws {
        let server = try await server(name)
        try folder.write(script.replacing("PORT", with: "\(server.port)"), to: "client.py")
        let outcome = try await SockcatProcess.shell("python3 client.py", in: folder)
        #expect(outcome.output == expected + "\n", "\(outcome)")
        #expect(await server.stop() == 0)
    }

    /// One write with a message that contains a second message between bare CR or LF.
    @Test(arguments: ["\\n.\\n", "\\n.\\r\\n", "\\r\\n.\\n", "\\r.\\r", "\\r\\n.\\r", "\\r.\\r\\n"])
    func aMessageCannotContainCommands(end: String) async throws {
        let server = try await server("smtp")
        let commands = "EHLO c\\r\\nMAIL FROM:<a@b>\\r\\nRCPT TO:<c@d>\\r\\nDATA\\r\\n"
        let message = "text\(end)MAIL FROM:<evil@b>\\r\\nRCPT TO:<c@d>\\r\\nDATA\\r\\nforged\\r\\n.\\r\\nQUIT\\r\\n"
        let outcome = try await SockcatProcess.shell(
            "printf '\(commands)\(message)' | sockcat connect --starttls smtp --ca ca.pem localhost \(server.port)", in: folder)
        let replies = outcome.output.split(whereSeparator: \.isNewline).map { String($0.prefix(4)) }.filter {
            $0 != "250-"
        }
        #expect(replies == ["250 ", "250 ", "250 ", "354 ", "250 ", "221 "], "\(outcome)")
        #expect(await server.stop() == 0)
    }

    @Test func aLineWithoutAnEndClosesTheConnection() async throws {
        let server = try await server("smtp")
        let outcome = try await SockcatProcess.shell(
            "head -c 200000 /dev/zero | sockcat connect --starttls smtp --ca ca.pem localhost \(server.port)", in: folder)
        #expect(outcome.output == "", "\(outcome)")
        #expect(try await server.line(containing: ": read").contains("8192"))
        #expect(await server.stop() == 0)
        #expect(try folder.text("printed") == "")
    }

    @Test func aSilentClientIsDisconnected() async throws {
        let server = try await server("smtp", "--idle-timeout 200ms")
        let outcome = try await SockcatProcess.shell(
            "sockcat connect --no-half-close --starttls smtp --ca ca.pem localhost \(server.port) </dev/null", in: folder)
        // The client's input is empty, so the client exits because the server closed the connection.
        #expect(outcome.status == 0 && outcome.output == "", "\(outcome)")
        #expect(await server.stop() == 0)
    }

    /// The server's name is from --name, or else from its certificate.
    @Test(arguments: [("--name mx.example.org", "mx.example.org"), ("--cert server.pem --key server.key", "localhost")])
    func theGreetingNamesTheServer(options: String, name: String) async throws {
        let server = try await SockcatServer("listen --mail --starttls smtp \(options) 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "QUIT\r\n", in: folder)
        #expect(outcome.output.hasPrefix("220 \(name) ESMTP"), "\(outcome)")
        #expect(await server.stop() == 0)
    }

    @Test(arguments: [
        ("--starttls ftp", "--mail requires --starttls smtp, lmtp, imap or pop3"), ("--tls", "--mail requires --starttls"),
        ("--starttls smtp --echo", "--mail cannot be combined"), ("--starttls smtp --exec cat", "--mail cannot be combined"),
        ("--starttls smtp --keep-open", "already serve any number of clients"),
    ]) func combinationsWithoutEffectAreErrors(options: String, message: String) async throws {
        let outcome = try await SockcatProcess.run("listen --mail \(options) localhost:0", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue)
        #expect(outcome.errors.contains(message), "\(outcome)")
    }
}

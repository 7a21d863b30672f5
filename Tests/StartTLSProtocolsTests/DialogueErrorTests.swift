import StartTLSProtocols
import Testing

@Suite struct DialogueErrorTests {
    @Test func aRefusalQuotesTheLine() throws {
        let refused: [(StartTLSDialogue, [String], StartTLSError.Code, String?)] = [
            (try StartTLSDialogue(client: .smtp(name: "c")), ["554-go\r\n554 away\r\n"], .refused, "554 away"),
            (
                try StartTLSDialogue(client: .smtp(name: "c")),
                ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n", "454 4.7.0 no key\r\n"],
                .refused,
                "454 4.7.0 no key"
            ),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["250-m\r\n220 m\r\n"], .unexpectedMessage, "220 m"),
            (try StartTLSDialogue(client: .imap), ["* PREAUTH welcome\r\n"], .alreadyAuthenticated, "* PREAUTH welcome"),
            (try StartTLSDialogue(client: .imap), ["* BYE busy\r\n"], .refused, "* BYE busy"),
            (
                try StartTLSDialogue(client: .imap), ["* OK [CAPABILITY STARTTLS]\r\n", "a2 NO later\r\n"], .refused,
                "a2 NO later"
            ),
            (try StartTLSDialogue(client: .imap), ["* OK [CAPABILITY STARTTLS]\r\n", "a3 OK\r\n"], .unexpectedMessage, "a3 OK"),
            (try StartTLSDialogue(client: .pop3), ["-ERR busy\r\n"], .refused, "-ERR busy"),
            (try StartTLSDialogue(client: .pop3), ["+OKAY\r\n"], .unexpectedMessage, "+OKAY"),
            (try StartTLSDialogue(client: .manageSieve), ["BYE \"busy\"\r\n"], .refused, "BYE \"busy\""),
            (try StartTLSDialogue(client: .ftp), ["220 m\r\n", "431 no resources\r\n"], .refused, "431 no resources"),
            (try StartTLSDialogue(client: .nntp), ["502 no\r\n"], .refused, "502 no"),
            (try StartTLSDialogue(client: .irc), [":m 691 * :no\r\n"], .refused, ":m 691 * :no"),
            (try StartTLSDialogue(client: .irc), ["ERROR :Closing\r\n"], .refused, "ERROR :Closing"),
            (try StartTLSDialogue(client: .xmpp(domain: "m")), ["<html>"], .unexpectedMessage, "<html>"),
            (try StartTLSDialogue(client: .postgres), ["E\u{0}\u{0}\u{0}\u{0B}SFATAL\u{0}"], .refused, "FATAL"),
            (try StartTLSDialogue(client: .mysql), ["\u{10}\u{0}\u{0}\u{0}\u{7F}xxToo many users"], .unexpectedMessage, nil),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "421 busy\r\n"], .refused, "421 busy"),
            (try StartTLSDialogue(client: .nntp), ["200 m\r\n", "400 busy\r\n"], .refused, "400 busy"),
            (try StartTLSDialogue(client: .pop3), ["+O\u{212A}\r\n"], .unexpectedMessage, "+O???"),
            (
                try StartTLSDialogue(client: .xmpp(domain: "m")),
                ["<s:stream xmlns:s='http://etherx.jabber.org/streams'>"], .notOffered, nil
            ),
            (
                try StartTLSDialogue(client: .xmpp(domain: "m")),
                [
                    "<s:stream version='1.0' xmlns:s='http://etherx.jabber.org/streams'><s:error>",
                    "<host-unknown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>",
                ], .refused, "<host-unknown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
            ),
            (try StartTLSDialogue(client: .script([.expect("yes")])), ["no\u{7}\r\n"], .unexpectedMessage, "no\\u{07}"),
        ]
        for (start, messages, code, line) in refused {
            var dialogue = start
            let error = dialogue.failure(after: messages.map { Array($0.utf8) })
            #expect(error?.code == code, "\(messages)")
            if let line { #expect(error?.line == line) }
        }
    }

    @Test func anErrorNamesTheProtocolAndTheLine() throws {
        var dialogue = try StartTLSDialogue(client: .smtp(name: "c"))
        let error = dialogue.failure(after: [Array("554 no\r\n".utf8)])
        #expect(error?.description == "SMTP: the server refused the connection: \"554 no\"")
        var other = try StartTLSDialogue(client: .smtp(name: "c"))
        let long = other.failure(after: [Array((String(repeating: "x", count: 300) + "\n").utf8)])
        #expect(long?.line == String(repeating: "x", count: 200) + "…")
    }

    @Test func aMySQLServerThatRefusesIsQuoted() throws {
        var dialogue = try StartTLSDialogue(client: .mysql)
        let packet: [UInt8] = [19, 0, 0, 0, 0xFF, 0x10, 0x04] + Array("Too many clients".utf8)
        #expect(dialogue.failure(after: [packet])?.line == "Too many clients")
    }

    @Test func aMySQLServerWithoutTLSIsNotTrusted() throws {
        var packet = Transcript.mariaDBGreeting
        let version = "5.5.5-10.11.6-MariaDB-0+deb12u1"
        packet[4 + 1 + version.utf8.count + 1 + 4 + 8 + 1 + 1] &= ~0x08
        var dialogue = try StartTLSDialogue(client: .mysql)
        #expect(dialogue.failure(after: [packet])?.code == .notOffered)
    }

    /// The client receives a reply in its own protocol.
    @Test func aClientThatContinuesWithoutTLSReceivesAnError() throws {
        let login: [(StartTLSDialogue, [UInt8], StartTLSError.Code, String)] = [
            (
                try StartTLSDialogue(server: .postgres), [0, 0, 0, 16, 0, 3, 0, 0] + Array("user\0a\0\0".utf8), .tlsRequired,
                "TLS is required"
            ),
            (
                try StartTLSDialogue(server: .mysql { Transcript.ownGreeting }),
                Transcript.packet(1, [0x00, 0x82, 0x08, 0x00] + [UInt8](repeating: 0, count: 30)), .tlsRequired,
                "TLS is required"
            ),
            (
                try StartTLSDialogue(server: .xmpp(domain: "m")),
                Array(
                    "<stream:stream to='M' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'><auth xmlns='x'>AGEAYg==</auth>"
                        .utf8),
                .tlsRequired, "policy-violation"
            ),
            (try StartTLSDialogue(server: .smtp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "221"),
            (try StartTLSDialogue(server: .imap(greeting: "m")), Array("a LOGOUT\r\n".utf8), .closed, "a OK"),
            (try StartTLSDialogue(server: .imap(greeting: "m")), Array("a LOGIN {4}\r\n".utf8), .unexpectedMessage, "* BYE"),
            (
                try StartTLSDialogue(server: .smtp(greeting: "m")), Array("BDAT 10\r\nSTARTTLS\r\n".utf8), .unexpectedMessage,
                "421"
            ),
            (
                try StartTLSDialogue(server: .postgres), [0, 0, 0, 16, 0, 3, 0, 2] + Array("user\0a\0\0".utf8), .tlsRequired,
                "TLS is required"
            ),
            (try StartTLSDialogue(server: .ldap), [0x30, 5, 2, 1, 3, 0x5F, 0], .unexpectedMessage, "1.3.6.1.4.1.1466.20036"),
            (try StartTLSDialogue(server: .pop3(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "+OK"),
            (try StartTLSDialogue(server: .manageSieve(greeting: "m")), Array("LOGOUT\r\n".utf8), .closed, "OK"),
            (try StartTLSDialogue(server: .ftp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "221"),
            (try StartTLSDialogue(server: .nntp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "205"),
            (try StartTLSDialogue(server: .irc(serverName: "m")), Array("QUIT\r\n".utf8), .closed, "ERROR"),
        ]
        for (start, message, code, reply) in login {
            var dialogue = start
            let error = dialogue.failure(after: [message])
            #expect(error?.code == code, "\(start.protocolName)")
            let sent = String(decoding: error?.reply ?? [], as: UTF8.self)
            #expect(sent.contains(reply), "\(start.protocolName)")
        }
    }

    @Test func anUnbindEndsTheSession() throws {
        var dialogue = try StartTLSDialogue(server: .ldap)
        #expect(dialogue.failure(after: [[0x30, 5, 2, 1, 3, 0x42, 0]])?.code == .closed)
    }

    /// A parameter with a line break would be a second command.
    @Test func aParameterWithALineBreakIsRejected() throws {
        let clients: [StartTLSClient] = [
            .smtp(name: "c\r\nMAIL"), .lmtp(name: ""), .smtp(name: "a b"), .xmpp(domain: "a'b"), .xmpp(domain: "a'\u{301}"),
            .xmppServerToServer(domain: "a", origin: "<"), .script([.send("a\r\nb")]),
        ]
        let servers: [StartTLSServer] = [
            .smtp(greeting: "a\nb"), .smtp(greeting: "a", capabilities: ["\r"]), .imap(greeting: "a\0"),
            .imap(greeting: "a", capabilities: ["A B"]), .pop3(greeting: "\n"), .pop3(greeting: "<1.2@example.org>"),
            .manageSieve(greeting: "\""), .ftp(greeting: "\n"), .nntp(greeting: "\n"), .irc(serverName: "a b"),
            .xmpp(domain: "a>"), .script([.send("")]),
            .mysql {
                MySQLGreeting(
                    serverVersion: "8", connectionID: 1, nonce: [1, 2, 3], authenticationMethod: "caching_sha2_password")
            },
        ]
        for client in clients {
            let error = #expect(throws: StartTLSError.self) { try StartTLSDialogue(client: client) }
            #expect(error?.code == .invalidParameter)
        }
        for server in servers {
            let error = #expect(throws: StartTLSError.self) { try StartTLSDialogue(server: server) }
            #expect(error?.code == .invalidParameter)
        }
    }

    /// Replies to earlier commands precede the error, so that the client does not mistake one for the other.
    @Test func repliesToEarlierCommandsAreNotLost() throws {
        var dialogue = try StartTLSDialogue(server: .smtp(greeting: "m"))
        let error = dialogue.failure(after: [Array("NOOP\r\nQUIT\r\n".utf8)])
        #expect(error?.code == .closed)
        #expect(String(decoding: error?.reply ?? [], as: UTF8.self) == "250 2.0.0 OK\r\n221 2.0.0 m closing connection\r\n")
    }

    /// Errors appear in logs.
    @Test func errorsDoNotQuotePasswords() throws {
        let logins: [(StartTLSDialogue, String)] = [
            (try StartTLSDialogue(server: .pop3(greeting: "m")), "PASS hunter2"),
            (try StartTLSDialogue(server: .smtp(greeting: "m")), "AUTH PLAIN hunter2"),
            (try StartTLSDialogue(server: .imap(greeting: "m")), "a LOGIN anna hunter2"),
            (try StartTLSDialogue(server: .manageSieve(greeting: "m")), "AUTHENTICATE hunter2"),
            (try StartTLSDialogue(server: .postgres), "hunter2"),
        ]
        for (start, login) in logins {
            var dialogue = start
            let error = dialogue.failure(after: [Array(login.utf8)]) ?? dialogue.endOfInputError
            #expect(!"\(error)".contains("hunter2"))
        }
        var dialogue = try StartTLSDialogue(server: .imap(greeting: "m"))
        #expect(dialogue.failure(after: [Array("a LOGIN anna hunter2 {5}\r\n".utf8)])?.line == "a LOGIN")
    }

    /// Bytes may still arrive between an error and the close.
    @Test func aDialogueThatFailedFailsAgain() throws {
        var dialogue = try StartTLSDialogue(server: .pop3(greeting: "m"))
        let error = dialogue.failure(after: [Array("QUIT\r\n".utf8)])
        let again = #expect(throws: StartTLSError.self) { try dialogue.receive([1]) }
        #expect(again == error)
        var complete = try StartTLSDialogue(client: .postgres)
        _ = complete.start()
        _ = try complete.receive([UInt8(ascii: "S")])
        let late = #expect(throws: StartTLSError.self) { try complete.receive([1, 2]) }
        #expect(late?.injectedByteCount == 2)
    }

    /// The lengths of these packets look like the first bytes of TLS records.
    @Test func aMySQLPacketIsNotMistakenForTLS() throws {
        var server = try StartTLSDialogue(server: .mysql { Transcript.ownGreeting })
        let login = [0x16, 0x03, 0x00, 0x01, 0x00, 0x82, 0x08, 0x00] + [UInt8](repeating: 0, count: 0x0316 - 4)
        #expect(server.failure(after: [login])?.code == .tlsRequired)
        var client = try StartTLSDialogue(client: .mysql)
        let refusal = [21, 0, 0, 0, 0xFF, 0x10, 0x04] + Array("Too many connections".utf8.prefix(18))
        #expect(client.failure(after: [refusal])?.code == .refused)
    }

    /// Comments, document types and processing instructions could hide an attack from a filter.
    @Test func forbiddenXMLIsRejected() throws {
        let header = "<stream:stream version='1.0' xmlns:stream='http://etherx.jabber.org/streams'>"
        for forbidden in [
            "<!-- x -->", "<!DOCTYPE x>", "<?pi?>", "<a b=c>", "<a b='1' b='2'>", "<a b>", "</x>", "text", "<x:a/>", "<1/>",
        ] {
            var dialogue = try StartTLSDialogue(client: .xmpp(domain: "m"))
            let error = dialogue.failure(after: [Array((header + forbidden).utf8)])
            #expect(error?.code == .unexpectedMessage || error?.code == .tlsRequired, "\(forbidden)")
        }
    }
}

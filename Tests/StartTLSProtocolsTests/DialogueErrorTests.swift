import StartTLSProtocols
import Testing

@Suite struct DialogueErrorTests {
    @Test func aRefusalQuotesTheLine() throws {
        let refused: [(StartTLSDialogue, [String], StartTLSError.Code, String?)] = [
            (StartTLSDialogue(client: .smtp(name: "c")), ["554-go\r\n554 away\r\n"], .refused, "554 away"),
            (
                StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n", "454 4.7.0 no key\r\n"],
                .refused,
                "454 4.7.0 no key"
            ),
            (StartTLSDialogue(client: .smtp(name: "c")), ["250-m\r\n220 m\r\n"], .unexpectedMessage, "220 m"),
            (StartTLSDialogue(client: .imap), ["* PREAUTH welcome\r\n"], .alreadyAuthenticated, "* PREAUTH welcome"),
            (StartTLSDialogue(client: .imap), ["* BYE busy\r\n"], .refused, "* BYE busy"),
            (StartTLSDialogue(client: .imap), ["* OK [CAPABILITY STARTTLS]\r\n", "a2 NO later\r\n"], .refused, "a2 NO later"),
            (StartTLSDialogue(client: .imap), ["* OK [CAPABILITY STARTTLS]\r\n", "a3 OK\r\n"], .unexpectedMessage, "a3 OK"),
            (StartTLSDialogue(client: .pop3), ["-ERR busy\r\n"], .refused, "-ERR busy"),
            (StartTLSDialogue(client: .pop3), ["+OKAY\r\n"], .unexpectedMessage, "+OKAY"),
            (StartTLSDialogue(client: .manageSieve), ["BYE \"busy\"\r\n"], .refused, "BYE \"busy\""),
            (StartTLSDialogue(client: .ftp), ["220 m\r\n", "431 no resources\r\n"], .refused, "431 no resources"),
            (StartTLSDialogue(client: .nntp), ["502 no\r\n"], .refused, "502 no"),
            (StartTLSDialogue(client: .irc), [":m 691 * :no\r\n"], .refused, ":m 691 * :no"),
            (StartTLSDialogue(client: .irc), ["ERROR :Closing\r\n"], .refused, "ERROR :Closing"),
            (StartTLSDialogue(client: .xmpp(domain: "m")), ["<html>"], .unexpectedMessage, "<html>"),
            (StartTLSDialogue(client: .postgres), ["E\u{0}\u{0}\u{0}\u{0B}SFATAL\u{0}"], .refused, "FATAL"),
            (StartTLSDialogue(client: .mysql), ["\u{10}\u{0}\u{0}\u{0}\u{7F}xxToo many users"], .unexpectedMessage, nil),
            (StartTLSDialogue(client: .script([.expect("yes")])), ["no\u{7}\r\n"], .unexpectedMessage, "no\\u{07}"),
        ]
        for (start, messages, code, line) in refused {
            var dialogue = start
            let error = dialogue.failure(after: messages.map { Array($0.utf8) })
            #expect(error?.code == code, "\(messages)")
            if let line { #expect(error?.line == line) }
        }
    }

    @Test func anErrorNamesTheProtocolAndTheLine() throws {
        var dialogue = StartTLSDialogue(client: .smtp(name: "c"))
        let error = dialogue.failure(after: [Array("554 no\r\n".utf8)])
        #expect(error?.description == "SMTP: the server refused the connection: \"554 no\"")
        var other = StartTLSDialogue(client: .smtp(name: "c"))
        let long = other.failure(after: [Array((String(repeating: "x", count: 300) + "\n").utf8)])
        #expect(long?.line == String(repeating: "x", count: 200) + "…")
    }

    @Test func aMySQLServerThatRefusesIsQuoted() throws {
        var dialogue = StartTLSDialogue(client: .mysql)
        let packet: [UInt8] = [19, 0, 0, 0, 0xFF, 0x10, 0x04] + Array("Too many clients".utf8)
        #expect(dialogue.failure(after: [packet])?.line == "Too many clients")
    }

    @Test func aMySQLServerWithoutTLSIsNotTrusted() throws {
        var packet = Transcript.mariaDBGreeting
        let version = "5.5.5-10.11.6-MariaDB-0+deb12u1"
        packet[4 + 1 + version.utf8.count + 1 + 4 + 8 + 1 + 1] &= ~0x08
        var dialogue = StartTLSDialogue(client: .mysql)
        #expect(dialogue.failure(after: [packet])?.code == .notOffered)
    }

    /// The client receives a reply in its own protocol.
    @Test func aClientThatContinuesWithoutTLSReceivesAnError() throws {
        let login: [(StartTLSDialogue, [UInt8], StartTLSError.Code, String)] = [
            (
                StartTLSDialogue(server: .postgres), [0, 0, 0, 16, 0, 3, 0, 0] + Array("user\0a\0\0".utf8), .tlsRequired,
                "TLS is required"
            ),
            (
                StartTLSDialogue(server: .mysql(greeting: Transcript.ownGreeting)),
                Transcript.packet(1, [0x00, 0x82, 0x08, 0x00] + [UInt8](repeating: 0, count: 30)), .tlsRequired,
                "TLS is required"
            ),
            (
                StartTLSDialogue(server: .xmpp(domain: "m")),
                Array(
                    "<stream:stream to='M' xmlns:stream='http://etherx.jabber.org/streams'><auth xmlns='x'>AGEAYg==</auth>".utf8),
                .tlsRequired, "policy-violation"
            ),
            (StartTLSDialogue(server: .smtp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "221"),
            (StartTLSDialogue(server: .imap(greeting: "m")), Array("a LOGOUT\r\n".utf8), .closed, "a OK"),
            (StartTLSDialogue(server: .imap(greeting: "m")), Array("a LOGIN {4}\r\n".utf8), .unexpectedMessage, "* BYE"),
            (StartTLSDialogue(server: .pop3(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "+OK"),
            (StartTLSDialogue(server: .manageSieve(greeting: "m")), Array("LOGOUT\r\n".utf8), .closed, "OK"),
            (StartTLSDialogue(server: .ftp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "221"),
            (StartTLSDialogue(server: .nntp(greeting: "m")), Array("QUIT\r\n".utf8), .closed, "205"),
            (StartTLSDialogue(server: .irc(serverName: "m")), Array("QUIT\r\n".utf8), .closed, "ERROR"),
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
        var dialogue = StartTLSDialogue(server: .ldap)
        #expect(dialogue.failure(after: [[0x30, 5, 2, 1, 3, 0x42, 0]])?.code == .closed)
    }

    /// A parameter with a line break would be a second command.
    @Test func aParameterWithALineBreakIsRejected() throws {
        let dialogues = [
            StartTLSDialogue(client: .smtp(name: "c\r\nMAIL")), StartTLSDialogue(client: .lmtp(name: "")),
            StartTLSDialogue(client: .smtp(name: "a b")),
            StartTLSDialogue(client: .xmpp(domain: "a'b")), StartTLSDialogue(client: .xmppServer(domain: "a", from: "<")),
            StartTLSDialogue(server: .smtp(greeting: "a\nb")),
            StartTLSDialogue(server: .smtp(greeting: "a", capabilities: ["\r"])),
            StartTLSDialogue(server: .imap(greeting: "a\0")),
            StartTLSDialogue(server: .imap(greeting: "a", capabilities: ["A B"])),
            StartTLSDialogue(server: .pop3(greeting: "\n")), StartTLSDialogue(server: .manageSieve(greeting: "\"")),
            StartTLSDialogue(server: .ftp(greeting: "\n")), StartTLSDialogue(server: .nntp(greeting: "\n")),
            StartTLSDialogue(server: .irc(serverName: "a b")), StartTLSDialogue(server: .xmpp(domain: "a>")),
            StartTLSDialogue(client: .script([.send("a\r\nb")])),
            StartTLSDialogue(
                server:
                    .mysql(
                        greeting: MySQLGreeting(
                            serverVersion: "8", connectionID: 1, nonce: [1, 2, 3], authenticationMethod: "caching_sha2_password"))
            ),
        ]
        for var dialogue in dialogues {
            #expect(dialogue.failure(after: [])?.code == .invalidParameter, "\(dialogue.protocolName)")
        }
    }

    @Test func aDialogueThatIsOverCannotBeUsed() throws {
        var dialogue = StartTLSDialogue(client: .postgres)
        #expect(throws: StartTLSError.self) { try dialogue.receive([UInt8(ascii: "S")]) }
        _ = try dialogue.start()
        #expect(throws: StartTLSError.self) { try dialogue.start() }
        _ = try dialogue.receive([UInt8(ascii: "S")])
        #expect(throws: StartTLSError.self) { try dialogue.receive([UInt8(ascii: "S")]) }
    }

    /// Comments, document types and processing instructions could hide an attack from a filter.
    @Test func forbiddenXMLIsRejected() throws {
        let header = "<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>"
        for forbidden in [
            "<!-- x -->", "<!DOCTYPE x>", "<?pi?>", "<a b=c>", "<a b='1' b='2'>", "<a b>", "</x>", "text", "<x:a/>", "<1/>",
        ] {
            var dialogue = StartTLSDialogue(client: .xmpp(domain: "m"))
            let error = dialogue.failure(after: [Array((header + forbidden).utf8)])
            #expect(error?.code == .unexpectedMessage || error?.code == .tlsRequired, "\(forbidden)")
        }
    }
}

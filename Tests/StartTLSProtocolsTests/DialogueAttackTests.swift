import StartTLSProtocols
import Testing

/// Attacks that apply to every protocol and to both sides.
@Suite struct DialogueAttackTests {
    /// Transcripts in which TLS is not allowed to follow the last message directly.
    static let waiting = Transcript.all.filter(\.surplus.isEmpty)

    private static let afterARequest: [[UInt8]] = [
        Transcript.sslRequest, [21, 3, 3, 0, 2, 2, 40], [23, 3, 3, 0, 1, 0], [0], Array("SELECT 1".utf8),
    ]

    @Test(arguments: waiting, ["x", "220 injected\r\n", "\u{16}\u{3}\u{1}\u{0}\u{5}"])
    func bytesAfterTheLastMessageAreAnInjection(_ transcript: Transcript, _ injected: String) throws {
        var messages = transcript.peerTurns
        messages[messages.count - 1] += Array(injected.utf8)
        var dialogue = try transcript.dialogue()
        let error = dialogue.failure(after: messages)
        #expect(error?.code == .injected)
        #expect(error?.injectedByteCount == injected.utf8.count)
    }

    /// A MySQL client starts TLS without waiting for a reply, so its ClientHello may follow its request. A
    /// login, an alert, application data and text may not.
    @Test(arguments: afterARequest) func plaintextAfterAMySQLRequestIsAnInjection(_ injected: [UInt8]) throws {
        var dialogue = try StartTLSDialogue(server: .mysql { Transcript.ownGreeting })
        let error = dialogue.failure(after: [Transcript.sslRequest + injected])
        #expect(error?.code == .injected)
        #expect(error?.injectedByteCount == injected.count)
        #expect(error?.reply == [])
    }

    /// The transport may have received more bytes when TLS starts. They are the next segment of the
    /// ClientHello if the client starts TLS without waiting for a reply. Otherwise they are an injection.
    @Test(arguments: Transcript.all) func aSegmentAfterTheLastMessageIsEitherTLSOrAnInjection(_ transcript: Transcript) throws {
        var dialogue = try transcript.dialogue()
        #expect(dialogue.failure(after: transcript.peerTurns) == nil)
        try dialogue.checkForInjection(receivedByteCount: 0)
        guard transcript.surplus.isEmpty else { return try dialogue.checkForInjection(receivedByteCount: 7) }
        let error = #expect(throws: StartTLSError.self) { try dialogue.checkForInjection(receivedByteCount: 7) }
        #expect(error?.code == .injected)
        #expect(error?.injectedByteCount == 7)
    }

    /// A server's replies that arrive before their commands. In IRC, STARTTLS is the first message.
    @Test(arguments: waiting.filter { $0.isClient && $0.peerTurns.count > 1 && !$0.name.contains("IRC") })
    func repliesBeforeTheirCommandsAreAnInjection(_ transcript: Transcript) throws {
        var dialogue = try transcript.dialogue()
        #expect(dialogue.failure(after: [transcript.peerTurns.flatMap { $0 }])?.code == .injected)
    }

    /// A dialogue that is cut off at any byte never starts TLS.
    @Test(arguments: Transcript.all) func aDialogueThatEndsEarlyFails(_ transcript: Transcript) throws {
        let bytes = transcript.peerTurns.flatMap { $0 }.dropLast(max(transcript.surplus.count, 1))
        for end in 0...bytes.count {
            var dialogue = try transcript.dialogue()
            var isOver = if case .startTLS = dialogue.start() { true } else { false }
            for byte in bytes.prefix(end) {
                if case .startTLS = try dialogue.receive([byte]) { isOver = true }
            }
            // The request of MySQL is complete without the bytes of TLS.
            #expect(!isOver || (transcript.name.contains("MySQL server") && end == bytes.count))
            #expect(dialogue.endOfInputError.code == .closed)
        }
    }

    @Test(arguments: Transcript.all) func aLineOrMessageWithoutEndIsTooLong(_ transcript: Transcript) throws {
        for turn in transcript.peerTurns.indices {
            var dialogue = try transcript.dialogue()
            _ = dialogue.start()
            for message in transcript.peerTurns.prefix(turn) { _ = try dialogue.receive(message) }
            var error: StartTLSError?
            for _ in 0..<100 where error == nil {
                do {
                    _ = try dialogue.receive([UInt8](repeating: UInt8(ascii: " "), count: 1000))
                } catch let thrown {
                    error = thrown
                }
            }
            // Binary protocols reject the bytes as a message instead.
            #expect(error?.code == .tooLong || error?.code == .unexpectedMessage, "turn \(turn)")
        }
    }

    /// Replies of 1 MiB, and commands without end that are each short.
    @Test func aReplyWithManyLinesIsTooLong() throws {
        let floods: [(StartTLSDialogue, String, String)] = [
            (try StartTLSDialogue(client: .smtp(name: "c")), "220 m\r\n", "250-AUTH LOGIN PLAIN\r\n"),
            (try StartTLSDialogue(client: .lmtp(name: "c")), "", "220-hello\r\n"),
            (try StartTLSDialogue(client: .imap), "* OK m\r\n", "* OK wait\r\n"),
            (try StartTLSDialogue(client: .pop3), "+OK\r\n", "+OK\r\n"),
            (try StartTLSDialogue(client: .manageSieve), "", "\"SIEVE\" {1}\r\n.\r\n"),
            (try StartTLSDialogue(client: .ftp), "", "220-hello\r\n"),
            (try StartTLSDialogue(client: .nntp), "200 m\r\n", "101 \r\n"),
            (try StartTLSDialogue(client: .irc), "", ":m NOTICE * :wait\r\n"),
            (try StartTLSDialogue(client: .xmpp(domain: "m")), "", "<?xml version='1.0'?>"),
            (try StartTLSDialogue(client: .script([.skip(to: "ready")])), "", "wait\r\n"),
            (try StartTLSDialogue(server: .smtp(greeting: "m")), "", "NOOP\r\n"),
            (try StartTLSDialogue(server: .lmtp(greeting: "m")), "", "RSET\r\n"),
            (try StartTLSDialogue(server: .imap(greeting: "m")), "", "a NOOP\r\n"),
            (try StartTLSDialogue(server: .pop3(greeting: "m")), "", "CAPA\r\n"),
            (try StartTLSDialogue(server: .manageSieve(greeting: "m")), "", "NOOP\r\n"),
            (try StartTLSDialogue(server: .ftp(greeting: "m")), "", "NOOP\r\n"),
            (try StartTLSDialogue(server: .nntp(greeting: "m")), "", "CAPABILITIES\r\n"),
            (try StartTLSDialogue(server: .irc(serverName: "m")), "", "PING 1\r\n"),
            (try StartTLSDialogue(server: .xmpp(domain: "m")), "", " \n"),
        ]
        for (start, first, repeated) in floods {
            var dialogue = start
            let flood = String(repeating: repeated, count: (1 << 20) / repeated.utf8.count)
            let segments = stride(from: 0, to: flood.utf8.count, by: 1000).map { Array(flood.utf8.dropFirst($0).prefix(1000)) }
            let error = dialogue.failure(after: first.isEmpty ? segments : [Array(first.utf8)] + segments)
            #expect(error?.code == .tooLong, "\(dialogue.protocolName) \(repeated)")
        }
    }

    /// Many commands in one segment, each of which has a long reply.
    @Test func repliesAreLimitedToo() throws {
        let capabilities = (0..<10).map { "CAPABILITY-\($0) " + String(repeating: "x", count: 50) }
        let floods: [(StartTLSDialogue, String)] = [
            (try StartTLSDialogue(server: .pop3(greeting: "m", capabilities: capabilities)), "CAPA\r\n"),
            (try StartTLSDialogue(server: .smtp(greeting: "m", capabilities: capabilities)), "EHLO c\r\n"),
            (try StartTLSDialogue(server: .imap(greeting: "m")), "\n"),
        ]
        for (start, command) in floods {
            var dialogue = start
            let error = dialogue.failure(after: [Array(String(repeating: command, count: 60_000 / command.utf8.count).utf8)])
            #expect(error?.code == .tooLong)
            #expect(error.map { $0.reply.count < 128 * 1024 } == true)
        }
    }

    /// The limits apply to the whole dialogue, so a client gains nothing by waiting for each reply, and loses
    /// nothing by sending its commands together.
    @Test func aFloodIsRefusedAtTheSameByteHoweverItIsCut() throws {
        let capabilities = (0..<10).map { "CAPABILITY-\($0) " + String(repeating: "x", count: 50) }
        let floods: [(StartTLSServer, String)] = [
            (.pop3(greeting: "m", capabilities: capabilities), "CAPA\r\n"), (.smtp(greeting: "m"), "NOOP\r\n"),
            (.smtp(greeting: "m"), "MAIL FROM:<a@example.org> BODY=8BITMIME SIZE=1000000\r\n"), (.imap(greeting: "m"), "\n"),
            (.imap(greeting: "m"), String(repeating: "x", count: 100)), (.xmpp(domain: "m"), " "),
        ]
        for (server, command) in floods {
            let flood = Array(String(repeating: command, count: 100_000 / command.utf8.count).utf8)
            let whole = try refusal(of: server, [flood])
            #expect(whole.code == .tooLong)
            // One reply, and the greeting and the farewell, may exceed the limit.
            #expect(whole.sent.count <= StartTLSDialogue.maximumLength + 2_000)
            for size in [1, 7, 1_000, 65_536, 65_537] {
                let pieces = stride(from: 0, to: flood.count, by: size).map { Array(flood.dropFirst($0).prefix(size)) }
                let cut = try refusal(of: server, pieces)
                // Describing the difference between long arrays would take `#expect` minutes.
                let isEqual = cut == whole
                #expect(isEqual, "\(command) in pieces of \(size)")
            }
        }
    }

    private struct Refusal: Equatable {
        var sent: [UInt8] = []
        var code: StartTLSError.Code?
        var message: String?
    }

    /// Returns everything that a server sends until its dialogue fails, and the error.
    private func refusal(of server: StartTLSServer, _ pieces: [[UInt8]]) throws -> Refusal {
        var dialogue = try StartTLSDialogue(server: server)
        guard case .send(let greeting) = dialogue.start() else { return Refusal() }
        var refusal = Refusal(sent: greeting)
        do throws(StartTLSError) {
            for piece in pieces {
                if case .send(let replies) = try dialogue.receive(piece) { refusal.sent += replies }
            }
        } catch {
            refusal.sent += error.reply
            (refusal.code, refusal.message) = (error.code, "\(error)")
        }
        return refusal
    }

    /// Bytes after the command that starts TLS are an injection, however many there are.
    @Test func aLongInjectionIsCountedWhole() throws {
        var dialogue = try StartTLSDialogue(server: .smtp(greeting: "m"))
        let error = dialogue.failure(after: [Array("STARTTLS\r\n".utf8) + [UInt8](repeating: 32, count: 100_000)])
        #expect(error?.code == .injected)
        #expect(error?.injectedByteCount == 100_000)
    }

    /// Comparing combining marks takes time that grows with the square of their number.
    @Test(.timeLimit(.minutes(1)), arguments: Transcript.all) func combiningMarksTakeNoTime(_ transcript: Transcript) throws {
        let marks = String(repeating: "\u{345}\u{315}\u{301}\u{323}\u{327}", count: 6_000)
        for start in ["", "a", "<a b", "220", "* ", "a {", "<a>"] {
            for turn in transcript.peerTurns.indices {
                var dialogue = try transcript.dialogue()
                let flood = Array((start + marks + ">=''>\r\n").utf8)
                let error = dialogue.failure(after: Array(transcript.peerTurns.prefix(turn)) + [flood])
                #expect(error?.code != .closed)
            }
        }
    }

    @Test(.timeLimit(.minutes(1))) func namespacesWithCombiningMarksTakeNoTime() throws {
        let marks = String(repeating: "\u{345}\u{315}\u{301}\u{323}\u{327}", count: 1_000)
        let header =
            "<s:stream version='1.0' xmlns='http://etherx.jabber.org/stream\(marks)' "
            + "xmlns:s='http://etherx.jabber.org/streams'><s:features>"
        var dialogue = try StartTLSDialogue(client: .xmpp(domain: "m"))
        let flood = header + String(repeating: "<error></error>", count: 3_600)
        #expect(dialogue.failure(after: [Array(flood.utf8)]) == nil)
    }

    /// Elements inside each other, each with a namespace.
    @Test func deepXMLIsRejected() throws {
        let header = "<stream:stream version='1.0' xmlns:stream='http://etherx.jabber.org/streams'>"
        let deep = String(repeating: "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls' xmlns:b=''>", count: 900)
        var server = try StartTLSDialogue(server: .xmpp(domain: "m"))
        #expect(server.failure(after: [Array((header + deep).utf8)])?.code == .tlsRequired)
        var client = try StartTLSDialogue(client: .xmpp(domain: "m"))
        let error = client.failure(after: [Array((header + "<stream:features>" + deep).utf8)])
        #expect(error?.code == .unexpectedMessage)
    }

    @Test func nestedRequestsForTLSAreRejected() throws {
        var dialogue = try StartTLSDialogue(server: .xmpp(domain: "m"))
        let message =
            "<s:stream version='1.0' xmlns:s='http://etherx.jabber.org/streams'>"
            + "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><starttls/>"
        #expect(dialogue.failure(after: [Array(message.utf8)])?.code == .tlsRequired)
    }

    /// A client that starts TLS without the command.
    @Test(arguments: Transcript.all.filter { !$0.isClient && !$0.name.contains("direct") })
    func anEarlyClientHelloFails(_ transcript: Transcript) throws {
        for turn in transcript.peerTurns.indices {
            var dialogue = try transcript.dialogue()
            let error = dialogue.failure(after: Array(transcript.peerTurns.prefix(turn)) + [[22, 3, 1, 2, 0, 1]])
            // A packet of MySQL starts with its length, which is then too large.
            let expected = transcript.name.contains("MySQL") ? StartTLSError.Code.unexpectedMessage : .unexpectedTLS
            #expect(error?.code == expected, "turn \(turn)")
        }
    }

    /// A port that expects TLS from the first byte replies to plaintext with an alert.
    @Test(arguments: Transcript.all.filter(\.isClient)) func anAlertIsExplained(_ transcript: Transcript) throws {
        var dialogue = try transcript.dialogue()
        let error = dialogue.failure(after: [[21, 3, 1, 0, 2, 2, 70]])
        guard !transcript.name.contains("MySQL") else { return #expect(error?.code == .unexpectedMessage) }
        #expect(error?.code == .unexpectedTLS)
        #expect(error?.message.contains("from the first byte") == true)
    }

    /// Offers that an attacker has removed, changed or repeated.
    @Test func anAlteredOfferIsNoOffer() throws {
        let altered: [(StartTLSDialogue, [String])] = [
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "250-m\r\n250 XXXXXXXX\r\n"]),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "250-m\r\n250 STARTTLSX\r\n"]),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "250-STARTTLS\r\n250 SIZE\r\n"]),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 STARTTLS\r\n", "250 STARTTLS\r\n"]),
            (try StartTLSDialogue(client: .smtp(name: "c")), ["220 m\r\n", "502 STARTTLS\r\n"]),
            (try StartTLSDialogue(client: .imap), ["* OK [CAPABILITY IMAP4rev1 XSTARTTLS] m\r\n"]),
            (try StartTLSDialogue(client: .imap), ["* OK STARTTLS\r\n", "a1 OK STARTTLS\r\n"]),
            (
                try StartTLSDialogue(client: .imap),
                ["* OK m\r\n", "* CAPABILITY STARTTLS\r\n* CAPABILITY IMAP4rev1\r\na1 OK\r\n"]
            ),
            (try StartTLSDialogue(client: .imap), ["* OK m\r\n", "* CAPABILITY STARTTLS\r\na1 NO\r\n"]),
            (try StartTLSDialogue(client: .pop3), ["+OK STLS\r\n", "+OK STLS\r\nUIDL STLS\r\n.\r\n"]),
            (try StartTLSDialogue(client: .manageSieve), ["\"SIEVE\" \"STARTTLS\"\r\nOK\r\n"]),
            (try StartTLSDialogue(client: .ftp), ["220 m\r\n", "502 no\r\n"]),
            (try StartTLSDialogue(client: .nntp), ["200 STARTTLS\r\n", "101 STARTTLS\r\nREADER STARTTLS\r\n.\r\n"]),
            (try StartTLSDialogue(client: .irc), [":m 421 * STARTTLS :Unknown command\r\n"]),
            (try StartTLSDialogue(client: .postgres), ["N"]),
            (
                try StartTLSDialogue(client: .ldap),
                ["\u{30}\u{0C}\u{2}\u{1}\u{1}\u{78}\u{7}\u{0A}\u{1}\u{2}\u{4}\u{0}\u{4}\u{0}"]
            ),
        ]
        for (start, messages) in altered {
            var dialogue = start
            #expect(dialogue.failure(after: messages.map { Array($0.utf8) })?.code == .notOffered, "\(messages)")
        }
    }
}

import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// `startTLS(as:)` and `acceptStartTLS(as:)` over real sockets.
@Suite(.timeLimit(.patient)) struct DialogueTests {
    /// Both sides of a protocol.
    struct Sides: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let client: StartTLSClient
        let server: StartTLSServer

        init(_ name: String, _ client: StartTLSClient, _ server: StartTLSServer) {
            (testDescription, self.client, self.server) = (name, client, server)
        }

        static let all = [
            Sides("SMTP", .smtp(name: "client.example"), .smtp(greeting: "mail.example.org")),
            Sides("LMTP", .lmtp(name: "client.example"), .lmtp(greeting: "mail.example.org")),
            Sides("IMAP", .imap, .imap(greeting: "ready")),
            Sides("POP3", .pop3, .pop3(greeting: "ready")),
            Sides("ManageSieve", .manageSieve, .manageSieve(greeting: "sieved")),
            Sides("FTP", .ftp, .ftp(greeting: "ready")),
            Sides("XMPP", .xmpp(domain: "example.org"), .xmpp(domain: "example.org")),
            Sides(
                "XMPP between servers", .xmppServerToServer(domain: "b.example", origin: "a.example"),
                .xmppServerToServer(domain: "b.example")),
            Sides("PostgreSQL", .postgres, .postgres),
            Sides("PostgreSQL or direct TLS", .postgres, .postgres(acceptsDirectTLS: true)),
            Sides("PostgreSQL with direct TLS", .postgresDirect, .postgres(acceptsDirectTLS: true)),
            Sides("MySQL", .mysql, .mysql { greeting }),
            Sides("LDAP", .ldap, .ldap),
            Sides("IRC", .irc, .irc(serverName: "irc.example.org")),
            Sides("NNTP", .nntp, .nntp(greeting: "ready")),
            Sides(
                "script", .script([.expect("hello"), .send("secure"), .expect("yes")]),
                .script([.send("hello"), .expect("secure"), .send("yes")])),
        ]

        private static let greeting = MySQLGreeting(
            serverVersion: "8.0.0", connectionID: 1, nonce: Array("abcdefghijklmnopqrst".utf8),
            authenticationMethod: "caching_sha2_password")
    }

    @Test(arguments: Sides.all, Style.allCases)
    func bothSidesReachTLS(_ sides: Sides, _ style: Style) async throws {
        let (client, server) = try await StyledSocket.pair(style, through: .listening())
        async let accepting: Void = server.acceptStartTLS(as: sides.server, TestCertificates.server())
        try await client.startTLS(as: sides.client, TestCertificates.client())
        try await accepting
        #expect(client.socket.isSecure && server.socket.isSecure)
        try await client.write("ping\n")
        #expect(try await server.readLine() == "ping")
        try await server.write("pong\n")
        #expect(try await client.readLine() == "pong")
    }

    @Test(arguments: Sides.all) func theBytesOfADialogueCountAndItsTimeEnds(_ sides: Sides) async throws {
        let pair = try await SocketPair()
        async let accepting = pair.server.acceptStartTLS(as: sides.server, settings: TestCertificates.server())
        try await pair.client.startTLS(as: sides.client, settings: TestCertificates.client())
        _ = try await accepting
        var carried: [CarriedBytes] = []
        for socket in [pair.client, pair.server] {
            try await socket.turn("the limits of the handshake have ended") { connection in
                guard connection.upgrade?.hasDeadline != true else { return false }
                carried.append(connection.data.carried)
                return true
            }
        }
        #expect(carried[0].sent == carried[1].received && carried[0].received == carried[1].sent)
        #expect((carried[0].sent > 0) == (sides.testDescription != "PostgreSQL with direct TLS"))
    }

    @Test(arguments: [TLSProtocolVersion.tls12, .tls13]) func bothVersionsOfTLSFollow(_ version: TLSProtocolVersion) async throws
    {
        let (client, server) = try await StyledSocket.pair(.task, through: .listening())
        async let accepting: Void = server.acceptStartTLS(as: .imap(greeting: "ready"), TestCertificates.server())
        try await client.startTLS(as: .imap, TestCertificates.client().only(version))
        try await accepting
        #expect(client.socket.tlsSession?.protocolVersion == version)
    }

    @Test func directTLSNegotiatesItsProtocol() async throws {
        let (client, server) = try await StyledSocket.pair(.task, through: .listening())
        async let accepting: Void = server.acceptStartTLS(as: .postgres(acceptsDirectTLS: true), TestCertificates.server())
        try await client.startTLS(as: .postgresDirect, TestCertificates.client())
        try await accepting
        #expect(client.socket.tlsSession?.applicationProtocol == "postgresql")
    }

    /// The ClientHello may already have arrived when the upgrade begins.
    @Test(arguments: ["MySQL", "PostgreSQL with direct TLS"])
    func aClientHelloWithTheLastMessageBelongsToTLS(_ name: String) async throws {
        let sides = try #require(Sides.all.first { $0.testDescription == name })
        let (client, server) = try await StyledSocket.pair(.task, through: .listening())
        var settings = try TestCertificates.server()
        settings.earlyPlaintext = .reject
        let strict = settings
        async let starting: Void = client.startTLS(as: sides.client, TestCertificates.client())
        if name != "MySQL" {
            try await server.socket.turn("a ClientHello is buffered") { !$0.data.reads.preBuffer.isEmpty }
        }
        try await server.acceptStartTLS(as: sides.server, strict)
        try await starting
    }

    /// The first segment of the ClientHello arrives with the request for TLS, and the second one before the
    /// handshake starts.
    @Test func theSegmentsOfAnEarlyClientHelloKeepTheirOrder() throws {
        let sides = try #require(Sides.all.first { $0.testDescription == "MySQL" })
        var (client, server) = (try StartTLSDialogue(client: sides.client), try StartTLSDialogue(server: sides.server))
        guard case .send = client.start(), case .send(let greeting) = server.start(),
            case .startTLS(let message, _) = try client.receive(greeting)
        else { throw Unexpected(description: "the client does not request TLS") }
        let hello: [UInt8] = [22, 3, 1, 0, 5, 1, 0, 0, 1, 9]
        for count in 1..<hello.count {
            let (end, peer) = try ChannelEnd.pair()
            let maker = DialogueRequest.maker(sides.server, .patient)
            let machine = try maker()
            let dialogue = UpgradeDialogue(try #require(machine))
            (message + hello.prefix(count)).withUnsafeBytes { end.reads.append($0) }
            try peer.send(hello.dropFirst(count))
            guard case .complete = dialogue.advance(over: end.channel, end.reads) else {
                throw Unexpected(description: "the dialogue is not complete")
            }
            #expect(end.takeBytes() == hello, "after \(count) bytes")
            #expect(try peer.receive() == greeting)
        }
    }

    /// Operations that a delegate's program queues during the dialogue do not mix with it.
    @Test func operationsQueuedDuringTheDialogueAreEncrypted() async throws {
        let peer = try ScriptedPeer.listening([
            .send("220 m\r\n"), .expect("EHLO c\r\n"), .send("250-m\r\n250 STARTTLS\r\n"), .expect("STARTTLS\r\n"),
            .send("220 go\r\n"), .startTLS(try TestCertificates.server()), .expect("a secret\r\n"), .send("220 injected\r\n"),
        ])
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try client.beginTLS(as: .smtp(name: "c"), settings: TestCertificates.client())
        client.write(Data("a secret\r\n"), withTimeout: .patient, tag: 1)
        client.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        try await recorder.connected()
        try await recorder.secured()
        #expect(try await recorder.readText() == "220 injected\r\n")
        _ = try await peer.finish()
    }

    /// The dialogue starts after earlier operations.
    @Test func theDialogueFollowsEarlierOperations() async throws {
        let (client, server) = try await StyledSocket.pair(.delegate, through: .listening())
        server.socket.write(Data("before\n"), withTimeout: .patient, tag: 1)
        async let reading = client.readLine()
        async let accepting: Void = StyledSocket.eventsUntilSecure(server, as: .pop3(greeting: "ready"))
        #expect(try await reading == "before")
        try await client.startTLS(as: .pop3, TestCertificates.client())
        try await accepting
    }

    @Test func aProgramThatReadsInAnotherTaskIsToldSo() async throws {
        let (client, server) = try await StyledSocket.pair(.task, through: .listening())
        let reading = Task { try await client.readLine() }
        try await client.socket.readWaits()
        let error = try await StyledSocket.refusal { try await client.startTLS(as: .imap, TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
        _ = await reading.result
        withExtendedLifetime(server) {}
    }

    @Test(arguments: Style.allCases) func aSecureConnectionHasNoDialogue(_ style: Style) async throws {
        let (client, server) = try await StyledSocket.pair(style, through: .listening())
        async let accepting: Void = server.startTLS(TestCertificates.server())
        try await client.startTLS(TestCertificates.client())
        try await accepting
        let error = try await StyledSocket.refusal { try await client.startTLS(as: .irc, TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
        try await server.write("still secure\n")
        #expect(try await client.readLine() == "still secure")
    }
}

extension StyledSocket {
    /// Accepts TLS on a delegate's socket that also reports a write.
    fileprivate static func eventsUntilSecure(_ server: StyledSocket, as protocol: StartTLSServer) async throws {
        try server.socket.beginAcceptingStartTLS(as: `protocol`, settings: TestCertificates.server())
        while true {
            if case .secured = try await server.nextEvent() { return }
        }
    }
}

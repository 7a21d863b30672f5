import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Early data between our own engines.
@Suite final class EarlyDataTests {
    private var world: EarlyDataWorld

    init() throws {
        world = try EarlyDataWorld()
    }

    @Test func earlyDataIsOffByDefault() throws {
        var settings = TLSSettings.server(identity: try #require(world.server.identity))
        #expect(settings.clients == .anyone)
        settings.sessionTickets = .issued(1)
        settings.minimumVersion = .tls12
        world.server = settings
        let session = try world.session()
        #expect(session.maximumEarlyDataBytes == 0)
        var conversation = try world.connect(resuming: session, sending: "early")
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .notOffered && conversation.client.session?.isResumed == true)
        #expect(conversation.read(on: .server) == "early")
    }

    @Test(arguments: [.max, 1, 7]) func aServerTakesEarlyDataWithTheFirstMessage(chunk: Int) throws {
        let session = try world.session()
        #expect(session.maximumEarlyDataBytes == 16_384)
        var conversation = try world.connect(resuming: session, sending: "early", chunk: chunk)
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .accepted && conversation.server.session?.earlyData == .accepted)
        if chunk == .max { #expect(conversation.firstFlightHasData) }
        #expect(conversation.client.session?.earlyDataByteCount == 0 && conversation.server.session?.earlyDataByteCount == 5)
        #expect(conversation.server.mayHaveAnswer)
        conversation.write(" late", from: .client)
        #expect(conversation.read(on: .server) == "early late")
        #expect(!conversation.server.mayHaveAnswer)
        conversation.write("answer", from: .server)
        #expect(conversation.read(on: .client) == "answer")
    }

    @Test func nothingIsReadBeforeTheHandshakeIsComplete() throws {
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        _ = conversation.client.handshake()
        conversation.carry(from: conversation.client, to: conversation.server)
        #expect(conversation.server.handshake().isIncomplete)
        #expect(conversation.server.output.count > 100)
        #expect(conversation.read(on: .server) == "" && conversation.server.session == nil)
        try conversation.shakeHands()
        #expect(conversation.read(on: .server) == "early")
    }

    @Test func smallReadsGetItInParts() throws {
        var conversation = try world.connect(resuming: world.session(), sending: "abcdef")
        try conversation.shakeHands()
        let buffer = PreBuffer()
        for count in 1...6 {
            guard case .bytes(1) = conversation.server.read(into: buffer, limit: 1) else { throw TestFailure(what: "read") }
            #expect(buffer.count == count)
        }
        #expect(conversation.server.read(into: buffer, limit: 1).isIncomplete)
        #expect(Array(buffer.readableBytes) == Array("abcdef".utf8))
    }

    @Test func withoutASessionItFollowsTheHandshake() throws {
        var conversation = try world.connect(resuming: nil, sending: "early")
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .notOffered && conversation.server.session?.earlyDataByteCount == 0)
        conversation.write(" late", from: .client)
        #expect(conversation.read(on: .server) == "early late")
    }

    @Test(arguments: [16_384, 16_385, 65_536]) func theLimitOfTheSessionCounts(count: Int) throws {
        let text = String(repeating: "x", count: count)
        var conversation = try world.connect(resuming: world.session(), sending: text)
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == (count <= 16_384 ? .accepted : .notOffered))
        #expect(conversation.read(on: .server) == text)
    }

    @Test(arguments: [1, 300, 65_536]) func aServerMayAllowMoreOrLess(maximum: Int) throws {
        let world = try EarlyDataWorld(maximum: maximum)
        let text = String(repeating: "x", count: maximum)
        var conversation = try world.connect(resuming: world.session(), sending: text, chunk: 1000)
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .accepted)
        #expect(conversation.read(on: .server) == text)
    }

    @Test func newTicketsAllowEarlyDataAgain() throws {
        var session = try world.session()
        for number in 0..<5 {
            var conversation = try world.connect(resuming: session, sending: "early \(number)")
            try conversation.shakeHands()
            #expect(conversation.server.session?.earlyData == .accepted)
            #expect(conversation.read(on: .server) == "early \(number)")
            conversation.write("!", from: .server)
            #expect(conversation.read(on: .client) == "!")
            session = try #require(conversation.client.session?.resumable)
        }
    }

    @Test(arguments: versions) func clientsWithoutEarlyDataNoticeNothing(_ version: TLSProtocolVersion) throws {
        world.client.maximumVersion = version
        var session: TLSResumableSession?
        for attempt in 0..<3 {
            var conversation = try world.connect(resuming: session, sending: nil, chunk: 100)
            try conversation.shakeHands()
            #expect(conversation.server.session?.protocolVersion == version)
            #expect(conversation.server.session?.isResumed == (attempt > 0))
            #expect(conversation.server.session?.earlyData == .notOffered)
            conversation.write("hello", from: .client)
            #expect(conversation.read(on: .server) == "hello")
            conversation.write("hi", from: .server)
            #expect(conversation.read(on: .client) == "hi")
            session = conversation.client.session?.resumable
        }
    }

    @Test func errorsOfOtherPeersAreTheSame() throws {
        let server = try world.newServer()
        server.receive("GET / HTTP/1.0\r\n\r\n")
        #expect(server.handshake().error?.code == .notTLS)
        let other = try world.newServer()
        other.receiveEndOfFile()
        #expect(other.handshake().error?.code == .closedDuringHandshake)
        // The stream ends after the early data.
        let conversation = try world.connect(resuming: world.session(), sending: "early")
        _ = conversation.client.handshake()
        conversation.carry(from: conversation.client, to: conversation.server)
        conversation.server.receiveEndOfFile()
        #expect(conversation.server.handshake().error?.code == .closedDuringHandshake)
        #expect(conversation.read(on: .server) == "")
    }

    // MARK: - Rejection

    private func expectRejection(
        _ conversation: EarlyConversation, _ outcome: TLSEarlyDataOutcome = .rejected, isResumed: Bool
    ) throws {
        var conversation = conversation
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == outcome && conversation.server.session?.earlyData == outcome)
        #expect(conversation.client.session?.isResumed == isResumed && conversation.server.session?.earlyDataByteCount == 0)
        conversation.write(" late", from: .client)
        #expect(conversation.read(on: .server) == "early late")
    }

    @Test func aServerWithOtherKeysGetsItAfterTheHandshake() throws {
        let session = try world.session()
        world.context = try TLSContext(for: world.server) { 0 }
        try expectRejection(world.connect(resuming: session, sending: "early"), isResumed: false)
    }

    @Test(arguments: [.max, 11]) func aServerThatStoppedTakingItGetsItLater(chunk: Int) throws {
        let session = try world.session()
        world.server.acceptedEarlyData = nil
        try expectRejection(world.connect(resuming: session, sending: "early", chunk: chunk), isResumed: false)
    }

    @Test func aRetryOfTheHelloRejectsIt() throws {
        world.server.policy.groups = ["x25519"]
        let session = try world.session()
        // The server does not support the group of the first key share, so it requests another ClientHello.
        world.server.policy.groups = ["secp384r1"]
        try expectRejection(world.connect(resuming: session, sending: "early"), isResumed: false)
    }

    /// With the keys of the same context, so that the session itself is resumed.
    @Test func aRetryWithAGoodTicketRejectsItToo() throws {
        world.server.policy.groups = ["secp384r1"]
        let session = try world.session()
        try expectRejection(world.connect(resuming: session, sending: "early"), isResumed: true)
    }

    @Test func aTicketIsTakenOnce() throws {
        let session = try world.session()
        var first = try world.connect(resuming: session, sending: "early")
        try first.shakeHands()
        #expect(first.server.session?.earlyData == .accepted)
        try expectRejection(world.connect(resuming: session, sending: "early"), isResumed: true)
    }

    @Test func aServerOfTLS12EndsTheConnection() throws {
        let session = try world.session()
        (world.server.acceptedEarlyData, world.server.sessionTickets) = (nil, .none)
        world.server.maximumVersion = .tls12
        var conversation = try world.connect(resuming: session, sending: "early")
        conversation.advance()
        // The client must not continue with the older version (RFC 8446, appendix D.3).
        let (client, server) = (conversation.client.session, conversation.server.session)
        #expect(client == nil && server == nil && !conversation.isComplete)
        #expect(conversation.clientError != nil && conversation.serverError != nil)
        #expect(conversation.read(on: .server) == "")
        // Without early data, it continues.
        var again = try world.connect(resuming: session, sending: nil)
        try again.shakeHands()
        #expect(again.client.session?.protocolVersion == .tls12)
    }

    /// A TLS 1.2 server would skip the early data, so the client does not offer that version (RFC 8446,
    /// appendix D.3).
    @Test func noServerTalksTheClientDown() throws {
        let session = try world.session()
        let issued = try world.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        for early in [nil, "early"] {
            let client = try world.connect(resuming: session, sending: early.map { TLSEarlyData(Array($0.utf8)) }).client
            let server = try RawPeer(.tls12, serverPEM: issued.pem)
            _ = client.handshake()
            let flight = Array(client.output.readableBytes)
            client.output.consume(flight.count)
            // Only the ClientHello.
            server.receive(Array(flight.prefix(5 + Int(flight[3]) << 8 + Int(flight[4]))))
            server.shakeHands(with: client)
            let error = client.handshake().error
            #expect(client.session?.protocolVersion == (early == nil ? .tls12 : nil))
            #expect(error?.alert == (early == nil ? nil : .protocolVersion), "\(String(describing: error))")
        }
    }

    @Test func moreThanTheTicketAllowsEndsTheConnection() throws {
        let world = try EarlyDataWorld(maximum: 100)
        var bytes = try world.session().bytes
        // The session allows 100 bytes, but this client assumes more.
        let old: [UInt8] = [0x02, 0x01, 0x64]
        let place = try #require((0..<bytes.count - 3).last { Array(bytes[$0..<$0 + 3]) == old && bytes[$0 - 2] == 0xAF })
        bytes[place + 2] = 0x7F
        let session = try TLSResumableSession(bytes: bytes)
        #expect(session.maximumEarlyDataBytes == 127)
        var conversation = try world.connect(resuming: session, sending: String(repeating: "x", count: 101))
        conversation.advance()
        #expect(conversation.serverError?.code == .protocolViolation)
        #expect(conversation.serverError?.sentAlert == .unexpectedMessage)
        #expect(conversation.client.readAll().end.error?.alert == .unexpectedMessage)
        #expect(conversation.read(on: .server) == "" && conversation.server.session == nil)
    }

    // MARK: - Protocols and server names

    @Test func itBelongsToOneProtocol() throws {
        world.client.applicationProtocols = ["h2", "http/1.1"]
        world.server.applicationProtocols = ["h2", "http/1.1"]
        let session = try world.session()
        for (name, outcome) in [("http/1.1", TLSEarlyDataOutcome.withheld), ("h2", .accepted)] {
            let early = TLSEarlyData(Array("early".utf8), applicationProtocol: name)
            var conversation = try world.connect(resuming: session, sending: early)
            try conversation.shakeHands()
            #expect(conversation.client.session?.applicationProtocol == "h2")
            #expect(conversation.client.session?.earlyData == outcome)
            conversation.write(" late", from: .client)
            // It is never used with another protocol.
            #expect(conversation.read(on: .server) == (outcome == .accepted ? "early late" : " late"))
        }
    }

    @Test func aServerThatChangesTheProtocolRejectsIt() throws {
        world.client.applicationProtocols = ["h2", "http/1.1"]
        world.server.applicationProtocols = ["h2"]
        let session = try world.session()
        world.server.applicationProtocols = ["http/1.1"]
        let early = TLSEarlyData(Array("early".utf8), applicationProtocol: "h2")
        var conversation = try world.connect(resuming: session, sending: early)
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .withheld)
        #expect(conversation.server.session?.earlyData == .rejected)
        #expect(conversation.client.session?.applicationProtocol == "http/1.1")
        conversation.write("late", from: .client)
        #expect(conversation.read(on: .server) == "late")
    }

    @Test func settingsByNameHaveTheirOwnLimits() throws {
        let other = try Fixture(.tls13)
        var named = world.server
        named.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 300)
        world.server.serverNames = try TLSServerNames([Fixture.host: named])
        world.server.acceptedEarlyData = nil
        let session = try world.session()
        #expect(session.maximumEarlyDataBytes == 300)
        var conversation = try world.connect(resuming: session, sending: "early")
        try conversation.shakeHands()
        #expect(conversation.server.session?.earlyData == .accepted && conversation.read(on: .server) == "early")
        withExtendedLifetime(other) {}
    }

    @Test func theCaseOfTheNameDoesNotEndTheConnection() throws {
        world.server.serverNames = try TLSServerNames([Fixture.host: world.server])
        let session = try world.session()
        let roots = world.client.trustRoots
        world.client = .client(serverName: Fixture.host.uppercased())
        world.client.trustRoots = roots
        try expectRejection(world.connect(resuming: session, sending: "early"), .notOffered, isResumed: true)
    }

    // MARK: - Trust

    @Test func aSessionWithoutATrustedServerSendsNone() throws {
        let session = try world.session()
        world.client.trustRoots = try Fixture.stranger.roots
        // A different scope, so it is not even offered.
        #expect(throws: TLSError.self) { try world.connect(resuming: session, sending: "early") }
        var conversation = try world.connect(resuming: nil, sending: "early")
        conversation.advance()
        #expect(conversation.clientError?.code == .unknownIssuer && conversation.read(on: .server) == "")
        // It was not sent.
        #expect(!conversation.firstFlightHasData && conversation.server.session == nil)
    }

    /// A server with another certificate must be verified before the data is sent to it again.
    @Test func whoRejectsItIsVerifiedBeforeItGetsItAgain() throws {
        let session = try world.session()
        world.server.identity = try Fixture.stranger.identity(.server(names: [Fixture.host]))
        var conversation = try world.connect(resuming: session, sending: "early")
        conversation.advance()
        #expect(conversation.clientError?.code == .unknownIssuer)
        #expect(conversation.read(on: .server) == "" && conversation.server.session == nil)
    }

    // MARK: - Settings

    @Test func contradictionsAreErrors() throws {
        func complaint<Side>(_ settings: TLSSettings<Side>, _ change: (inout TLSSettings<Side>) throws -> Void) throws -> String?
        {
            var settings = settings
            try change(&settings)
            do throws(TLSError) {
                _ = try TLSContext.context(for: settings)
                return nil
            } catch {
                return error.code == .invalidSettings ? error.message : "\(error.code)"
            }
        }
        let server = world.server
        #expect(try complaint(server) { _ in } == nil)
        for count in [-1, 0, 65_537] {
            let words = try complaint(server) { $0.acceptedEarlyData = TLSAcceptedEarlyData(upTo: count) }
            #expect(words?.contains("must be from 1 to 65536, but is \(count)") == true)
        }
        for count in [-1, 0, 9] {
            let words = try complaint(server) { $0.sessionTickets = .issued(count) }
            #expect(words?.contains("must be from 1 to 8, but is \(count)") == true)
        }
        #expect(try complaint(server) { $0.maximumVersion = .tls12 }?.contains("TLS 1.3") == true)

        var client = world.client
        client.earlyData = TLSEarlyData([1])
        #expect(try complaint(client) { _ in } == nil)
        #expect(try complaint(client) { $0.earlyData?.bytes = [] }?.contains("1 to 65536") == true)
        let tooMany = [UInt8](repeating: 0, count: 65_537)
        #expect(try complaint(client) { $0.earlyData?.bytes = tooMany }?.contains("1 to 65536") == true)
        #expect(try complaint(client) { $0.resumption = .none }?.contains("resumption") == true)
        #expect(try complaint(client) { $0.trustEvaluation = .delegate }?.contains("trust callback") == true)
        #expect(try complaint(client) { $0.trustEvaluation = .manual }?.contains("trust callback") == true)
        #expect(try complaint(client) { $0.maximumVersion = .tls12 }?.contains("TLS 1.3") == true)
        #expect(try complaint(client) { $0.applicationProtocols = ["h2", "x"] }?.contains("has no applicationProtocol") == true)
        #expect(try complaint(client) { $0.earlyData?.applicationProtocol = "h2" }?.contains("does not contain it") == true)
    }
}

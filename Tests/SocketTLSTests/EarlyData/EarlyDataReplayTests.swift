import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Replays of a first flight, and early data passed to a responder.
@Suite(.timeLimit(.patient)) final class EarlyDataReplayTests {
    private var world: EarlyDataWorld
    private let requests = Locked<[TLSEarlyDataRequest]>([])
    private let answer = Locked<TLSEarlyDataResponse>(.afterHandshake)

    init() throws {
        world = try EarlyDataWorld()
        world.server.values.acceptedEarlyData?.responder = TLSEarlyDataResponder { [requests, answer] request in
            requests.withLock { $0.append(request) }
            return answer.withLock { $0 }
        }
    }

    private var asked: [String] { requests.withLock { $0.map { String(decoding: $0.bytes, as: UTF8.self) } } }

    /// Returns a client's first flight with early data, which is not delivered to the server.
    private func firstFlight(resuming session: TLSResumableSession, _ text: String) throws -> [UInt8] {
        let conversation = try world.connect(resuming: session, sending: text)
        _ = conversation.client.handshake()
        return Array(conversation.client.output.readableBytes)
    }

    /// Delivers a flight to a new server. Returns whether early data was accepted.
    private func isTaken(_ flight: [UInt8], by server: TLSEngine) async throws -> Bool {
        server.receive(flight)
        let first = server.handshake()
        // The server continues the handshake in any case, but only the client can complete it.
        #expect(server.output.count > 100)
        var isTaken = false
        if case .awaitingSettings(let question) = first {
            isTaken = true
            server.choose(await question.answer())
        } else {
            #expect(first.isIncomplete)
        }
        #expect(server.handshake().isIncomplete && server.readAllBytes().bytes.isEmpty && server.session == nil)
        return isTaken
    }

    // MARK: - Replays

    @Test func aReplayIsNotTaken() async throws {
        let flight = try firstFlight(resuming: world.session(), "early")
        #expect(try await isTaken(flight, by: world.newServer()))
        for _ in 0..<5 { #expect(try await !isTaken(flight, by: world.newServer())) }
        #expect(asked == ["early"])
    }

    @Test func aReplayAfterTheConversationIsNotTaken() async throws {
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        conversation.advance()
        await conversation.answer()
        try conversation.shakeHands()
        #expect(conversation.read(on: .server) == "early" && conversation.firstFlight.count > 300)
        for _ in 0..<5 { #expect(try await !isTaken(conversation.firstFlight, by: world.newServer())) }
        #expect(asked == ["early"])
    }

    /// If the copy arrives first, the client itself must complete the handshake.
    @Test func whoComesSecondHasToFinishTheHandshake() async throws {
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        _ = conversation.client.handshake()
        #expect(try await isTaken(Array(conversation.client.output.readableBytes), by: world.newServer()))
        try conversation.shakeHands()
        #expect(conversation.client.session?.earlyData == .rejected && conversation.read(on: .server) == "early")
        #expect(asked == ["early"])
    }

    @Test func aReplayToAServerWithOtherKeysIsNotTaken() async throws {
        let flight = try firstFlight(resuming: world.session(), "early")
        world.context = try TLSContext(for: world.server, ticketClock: nil)
        #expect(try await !isTaken(flight, by: world.newServer()))
        #expect(asked == [])
    }

    @Test func aFullRecordTakesNothing() async throws {
        world.context = try TLSContext(for: world.server, record: EarlyDataRecord(limit: 2), ticketClock: nil)
        let flights = try (0..<4).map { try firstFlight(resuming: world.session(), "early \($0)") }
        for (number, flight) in flights.enumerated() {
            #expect(try await isTaken(flight, by: world.newServer()) == (number < 2))
        }
        // Existing entries are kept, and the sessions are still resumed.
        for flight in flights { #expect(try await !isTaken(flight, by: world.newServer())) }
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        try conversation.shakeHands()
        #expect(conversation.server.session?.isResumed == true && conversation.server.session?.earlyData == .rejected)
        #expect(conversation.read(on: .server) == "early")
    }

    /// The system clock was changed, so its age of the ticket differs from that of our own clock.
    @Test(arguments: [(2, true), (3, false), (20, false)]) func agesByTwoClocksMustAgree(_ seconds: Int, _ taken: Bool)
        async throws
    {
        let clock = Locked(1000)
        world.context = try TLSContext(for: world.server) { clock.withLock { $0 } }
        // The system clock advances, so an attempt counts only if the second has not changed meanwhile.
        for _ in 0..<1000 {
            let start = time(nil)
            let flight = try firstFlight(resuming: world.session(), "early")
            clock.withLock { $0 += seconds }
            let wasTaken = try await isTaken(flight, by: world.newServer())
            guard time(nil) == start else { continue }
            return #expect(wasTaken == taken)
        }
        Issue.record("a try takes more than a second")
    }

    /// The client states a wrong age of the ticket.
    @Test(arguments: [0, 60]) func theAgeOfTheTicketMustBeRight(_ seconds: UInt32) async throws {
        var bytes = try world.session().bytes
        // The session's time is the four-byte INTEGER [1] in `SSL_SESSION_ASN1`.
        let place = try #require((0..<bytes.count - 8).first { Array(bytes[$0..<$0 + 4]) == [0xA1, 6, 2, 4] }) + 4
        let time = bytes[place..<place + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) } - seconds
        withUnsafeBytes(of: time.bigEndian) { bytes.replaceSubrange(place..<place + 4, with: $0) }
        let session = try TLSResumableSession(bytes: bytes)
        #expect(try await isTaken(firstFlight(resuming: session, "early"), by: world.newServer()) == (seconds == 0))
        var conversation = try world.connect(resuming: session, sending: "early")
        try conversation.shakeHands()
        #expect(conversation.server.session?.isResumed == true && conversation.server.session?.earlyData == .rejected)
        #expect(conversation.read(on: .server) == "early")
    }

    // MARK: - Modified bytes

    @Test func changedEarlyDataEndsTheConnection() throws {
        world.server.values.acceptedEarlyData?.responder = nil
        var flight = try firstFlight(resuming: world.session(), "early")
        flight[flight.count - 1] ^= 1
        let server = try world.newServer()
        server.receive(flight)
        let error = try #require(server.handshake().error)
        #expect(error.code == .protocolViolation && error.sentAlert == .badRecordMAC)
        #expect(server.readAll().text == "" && server.session == nil)
    }

    /// If an attacker drops the last record, the client's next data cannot be decrypted.
    @Test func earlyDataIsNotCutShort() throws {
        let old = try world.session()
        world = try EarlyDataWorld(maximum: 65_536)
        let session = try world.session()
        #expect(old.maximumEarlyDataBytes < session.maximumEarlyDataBytes)
        let conversation = try world.connect(resuming: session, sending: String(repeating: "x", count: 16_384) + "end")
        _ = conversation.client.handshake()
        let flight = Array(conversation.client.output.readableBytes)
        conversation.client.output.consume(flight.count)
        conversation.server.receive(Array(flight.dropLast(5 + 3 + 17)))
        #expect(conversation.server.handshake().isIncomplete)
        conversation.carry(from: conversation.server, to: conversation.client)
        #expect(conversation.client.handshake().isComplete)
        conversation.carry(from: conversation.client, to: conversation.server)
        #expect(conversation.server.handshake().error?.code == .protocolViolation)
        #expect(conversation.server.readAll().text == "" && conversation.server.session == nil)
    }

    // MARK: - The replay record

    @Test func aTicketIsRememberedForTwentySeconds() {
        #expect(EarlyDataRecord.period == 20)
        let ticket = EarlyDataRecord.Ticket(high: 1, low: 2)
        for start in [0, 7, 19, 20, 33] {
            for delay in 0..<20 {
                var record = EarlyDataRecord()
                // The periods start with other tickets.
                for time in 0...start { _ = record.admit(.init(high: 9, low: UInt64(time)), at: time) }
                let isFirstAdmitted = record.admit(ticket, at: start)
                let isEverAdmittedAgain = (start...start + delay).contains { record.admit(ticket, at: $0) }
                #expect(isFirstAdmitted && !isEverAdmittedAgain)
            }
        }
    }

    @Test func aFullRecordHasRoomAgainLater() {
        var record = EarlyDataRecord(limit: 3)
        func ticket(_ number: UInt64) -> EarlyDataRecord.Ticket { .init(high: 0, low: number) }
        var admitted: [Bool] = []
        for (number, time) in [
            (0, 100), (1, 100), (2, 100), (3, 100), (9, 119), (9, 120), (0, 120), (0, 139), (0, 140), (9, 140),
        ] {
            admitted.append(record.admit(ticket(UInt64(number)), at: time))
        }
        #expect(admitted == [true, true, true, false, false, true, false, false, true, false])
    }

    // MARK: - The responder

    /// The response arrives with the server's first flight, half a round trip before the client is confirmed.
    @Test(arguments: [2, 200_000]) func aResponderRepliesBeforeTheHandshakeIsComplete(count: Int) async throws {
        let text = String(repeating: "a", count: count)
        answer.withLock { $0 = .send(Array(text.utf8)) }
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        _ = conversation.client.handshake()
        conversation.carry(from: conversation.client, to: conversation.server)
        guard case .awaitingSettings(let question) = conversation.server.handshake() else {
            throw TestFailure(what: "no question")
        }
        // It waits for the response.
        #expect(conversation.server.handshake().isIncomplete)
        conversation.server.choose(await question.answer())
        conversation.carry(from: conversation.server, to: conversation.client)
        #expect(conversation.client.handshake().isComplete)
        #expect(conversation.read(on: .client) == text)
        #expect(conversation.server.session == nil)
        try conversation.shakeHands()
        #expect(conversation.server.session?.earlyData == .accepted && conversation.server.session?.earlyDataByteCount == 0)
        conversation.write("late", from: .client)
        // Early data that was passed to the responder is not read again.
        #expect(conversation.read(on: .server) == "late" && asked == ["early"])
        // The next ticket was sent without other data.
        #expect(conversation.read(on: .client) == "" && conversation.client.session?.resumable != nil)
        var next = try world.connect(resuming: conversation.client.session?.resumable, sending: "more")
        next.advance()
        await next.answer()
        try next.shakeHands()
        #expect(next.read(on: .client) == text && asked == ["early", "more"])
    }

    @Test func aRequestTellsWhatTheClientWants() async throws {
        world.client.applicationProtocols = ["h2"]
        world.server.applicationProtocols = ["h2"]
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        conversation.advance()
        await conversation.answer()
        try conversation.shakeHands()
        let expected = TLSEarlyDataRequest(bytes: Array("early".utf8), serverName: Fixture.host, applicationProtocol: "h2")
        #expect(requests.withLock { $0 } == [expected])
        // It leaves the data to be read.
        #expect(conversation.read(on: .server) == "early")
    }

    /// A function chooses settings for a server name that have the responder.
    @Test func bothFunctionsOfAServerAreAsked() async throws {
        answer.withLock { $0 = .send(Array("at once".utf8)) }
        let named = world.server
        world.server.acceptedEarlyData = nil
        world.server.serverNames = TLSServerNames { $0.serverName == Fixture.host ? named : nil }
        func converse(_ session: TLSResumableSession?, _ text: String) async throws -> EarlyConversation {
            var conversation = try world.connect(resuming: session, sending: text)
            conversation.advance()
            for _ in 0..<2 { await conversation.answer() }
            try conversation.shakeHands()
            return conversation
        }
        var first = try await converse(nil, "first")
        first.write("!", from: .server)
        #expect(first.read(on: .client) == "!" && first.read(on: .server) == "first" && asked == [])
        let second = try await converse(first.client.session?.resumable, "early")
        #expect(second.server.session?.earlyData == .accepted && asked == ["early"])
        #expect(second.read(on: .client) == "at once" && second.read(on: .server) == "")
    }

    @Test func aResponderWaitsForMore() async throws {
        answer.withLock { $0 = .awaitMore }
        let text = String(repeating: "x", count: 16_384) + "end"
        let world = try EarlyDataWorld(maximum: 65_536)
        var server = world.server
        server.values.acceptedEarlyData?.responder = self.world.server.values.acceptedEarlyData?.responder
        self.world = world
        self.world.server = server
        let flight = try firstFlight(resuming: self.world.session(), text)
        let engine = try self.world.newServer()
        var counts: [Int] = []
        // Two records: the responder is called after each.
        for part in [flight.dropLast(10), flight.suffix(10)] {
            // Half a record does not add data.
            if !counts.isEmpty {
                engine.receive(Array(part.prefix(5)))
                #expect(engine.handshake().isIncomplete)
            }
            engine.receive(Array(part.dropFirst(counts.isEmpty ? 0 : 5)))
            guard case .awaitingSettings(let question) = engine.handshake() else { throw TestFailure(what: "no question") }
            engine.choose(await question.answer())
            counts.append(requests.withLock { $0.last?.bytes.count ?? 0 })
            #expect(engine.handshake().isIncomplete)
        }
        #expect(counts == [16_384, 16_387])
    }

    @Test func aResponderIsAskedSixteenTimesAtMost() async throws {
        answer.withLock { $0 = .awaitMore }
        let session = try world.session()
        let client = try RawPeer(.tls13)
        try client.resume(session.openSSLBytes)
        _ = COpenSSL_setServerNameIndication(client.ssl, Fixture.host)
        let server = try world.newServer()
        var answers = 0
        for _ in 0..<40 {
            var count = 0
            #expect(SSL_write_early_data(client.ssl, [UInt8(ascii: "x")], 1, &count) == 1)
            server.receive(client.takeOutput())
            if case .awaitingSettings(let question) = server.handshake() {
                answers += 1
                server.choose(await question.answer())
            }
        }
        #expect(answers == 16 && asked.last == String(repeating: "x", count: 16))
        client.shakeHands(with: server)
        #expect(server.readAll().text == String(repeating: "x", count: 40))
    }

    @Test func anAnswerThatComesTooLateChangesNothing() async throws {
        answer.withLock { $0 = .send([1, 2, 3]) }
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        conversation.advance()
        let question = try #require(conversation.question)
        conversation.server.abandonHandshake()
        let count = conversation.server.output.count
        conversation.server.choose(await question.answer())
        #expect(conversation.server.output.count == count)
        #expect(conversation.server.handshake().error?.code == .closedDuringHandshake)
        #expect(conversation.server.readAll().text == "" && conversation.server.session == nil)
    }

    /// If a client does not complete the handshake correctly, neither a response nor the early data is
    /// delivered.
    @Test func aClientThatBreaksOffIsNotDelivered() async throws {
        var conversation = try world.connect(resuming: world.session(), sending: "early")
        conversation.advance()
        await conversation.answer()
        _ = conversation
        let flight = try firstFlight(resuming: world.session(), "other")
        let server = try world.newServer()
        server.receive(flight)
        guard case .awaitingSettings(let question) = server.handshake() else { throw TestFailure(what: "no question") }
        server.choose(await question.answer())
        server.receive([UInt8](repeating: 0x17, count: 5) + [UInt8](repeating: 0, count: 64))
        let error = try #require(server.handshake().error)
        #expect(error.code == .protocolViolation)
        #expect(server.readAll().text == "" && server.session == nil)
    }
}

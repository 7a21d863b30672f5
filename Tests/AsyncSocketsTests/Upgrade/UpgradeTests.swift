import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Transcripts of two `HandshakeDriver`s over a wire controlled by the test, without turns or event loops.
@Suite(.timeLimit(.patient)) struct UpgradeTests {
    /// One side, with the events of its delegate and the messages posted to it.
    private final class Side: PartOwner, @unchecked Sendable {
        // Unchecked: used on one thread, except for `posted`.
        let end: ChannelEnd
        let events = EventOutbox<DelegateEvent>()
        let record = Locked(ConnectionRecord())
        let observation: ConnectionObservation? = nil
        private(set) lazy var data = DataPath(events)
        private(set) var upgrade: HandshakeDriver?
        private let posted = Locked<[ConnectionMessage]>([])
        private(set) var fate = ""

        init(_ end: ChannelEnd) {
            self.end = end
            data.open(end.channel)
        }

        func post(_ message: ConnectionMessage) { posted.withLock { $0.append(message) } }
        func watch(_ descriptor: SocketDescriptor) {}
        func note(_ message: String, _ details: @autoclosure () -> [String: String]) {}

        func begin(
            _ settings: TLSSettings<some TLSRole.Side>, _ waiter: CountingWaiter<HandshakeNews>? = nil,
            waitsForNoTask: Bool = false
        ) throws {
            let request = TLSRequest(
                settings: settings.values, context: try .context(for: settings.values), waiter: waiter,
                waitsForNoTask: waitsForNoTask)
            note(HandshakeDriver.begin(request, &upgrade, data))
        }

        func note(_ fate: DataPath.Step) {
            if case .ends(let error) = fate { self.fate = error.map { "\($0.code)" } ?? "ended" }
        }

        /// Performs the work of a connection's turn. Returns whether data has moved.
        func work() -> Bool {
            let before = end.channel.hasUnsentBytes
            for message in posted.withLock({ $0.taken() }) {
                if case .upgrading(let news) = message { upgrade?.receive(news, data, self) }
            }
            guard let upgrade, !upgrade.state.isSettled, fate.isEmpty else {
                note(data.pump())
                return false
            }
            while fate.isEmpty {
                if upgrade.state.isOpenForData { note(data.exchange()) }
                switch upgrade.advance(data, self) {
                case .moved: continue
                case .fails(let error): fate = "\(error.code)"
                case .incomplete, .more: break
                }
                break
            }
            return before != end.channel.hasUnsentBytes
        }

        /// The delegate's events since the last call, including the end.
        var words: [String] {
            var words: [String] = []
            while let event = events.waiting.popFirst() {
                switch event {
                case .didSecure: words.append("secure")
                case .didReceiveTrust: words.append("asked")
                case .didReceiveClientCertificate(.success): words.append("known")
                case .didReceiveClientCertificate(.failure(let error)): words.append("unknown: \(error.code)")
                case .didRead(let data, _): words.append("read " + String(decoding: data, as: UTF8.self))
                case .didWrite(let tag): words.append("wrote \(tag)")
                default: words.append("\(event)")
                }
            }
            if !fate.isEmpty { words.append("ends: \(fate)") }
            return words
        }

        /// Returns the completion handler of the delegate's trust callback.
        func takeQuestion() -> ((Bool) -> Void)? {
            guard case .didReceiveTrust(_, let answer)? = events.waiting.popFirst() else { return nil }
            return answer
        }
    }

    private let wire: ChannelWire
    private let client: Side
    private let server: Side

    init() throws {
        wire = try ChannelWire()
        (client, server) = (Side(wire.client), Side(wire.server))
    }

    /// Runs until no more data moves.
    private func run() throws {
        var isMoving = true
        while isMoving {
            _ = (client.work(), server.work())
            isMoving = try wire.carry()
        }
    }

    private func beginBoth(_ change: (inout TLSClientSettings, inout TLSServerSettings) throws -> Void = { _, _ in }) throws {
        var (ours, theirs) = (try TestCertificates.client(), try TestCertificates.server())
        try change(&ours, &theirs)
        try client.begin(ours)
        try server.begin(theirs)
    }

    // MARK: - startTLS

    @Test func bothSidesAreToldOnce() throws {
        try beginBoth()
        #expect(client.upgrade?.state.isSecure == false)
        try run()
        #expect(client.words == ["secure"] && server.words == ["secure"])
        for side in [client, server] {
            #expect(side.upgrade?.state.isSettled == true && side.upgrade?.hasDeadline == false)
            #expect(side.record.withLock { $0.snapshot.isSecure && $0.snapshot.session != nil && $0.snapshot.exporter != nil })
        }
    }

    /// Operations before the markers are in plaintext, and those after them encrypted, in order.
    @Test func operationsBehindTheUpgradeAreEncrypted() throws {
        _ = client.data.enqueue(WritePacket(data: Data("plain".utf8), timeout: -1, tag: 1))
        server.data.enqueue(ReadPacket.make(.length(5), timeout: -1, tag: 2))
        try beginBoth()
        _ = client.data.enqueue(WritePacket(data: Data("secret".utf8), timeout: -1, tag: 3))
        server.data.enqueue(ReadPacket.make(.length(6), timeout: -1, tag: 4))
        try run()
        #expect(client.words == ["wrote 1", "secure", "wrote 3"])
        #expect(server.words == ["read plain", "secure", "read secret"])
    }

    @Test func aSecondUpgradeIsRefusedAndTheFirstGoesOn() throws {
        try beginBoth()
        let waiter = CountingWaiter<HandshakeNews>()
        try client.begin(TestCertificates.client(), waiter)
        #expect(waiter.outcomes == [.failed(.closed)])
        try run()
        #expect(client.words == ["secure"] && server.words == ["secure"])
    }

    /// Otherwise the read would wait for bytes, and TLS for the read.
    @Test func aTasksUpgradeDoesNotWaitForTheReadOfAnother() throws {
        let (read, waiter) = (CountingWaiter<Data>(), CountingWaiter<HandshakeNews>())
        client.data.enqueue(ReadPacket.make(.anyBytes, timeout: -1, completion: .waiter(read)))
        try client.begin(TestCertificates.client(), waiter, waitsForNoTask: true)
        #expect(waiter.outcomes == [.failed(.badConfiguration)] && client.words == ["ends: badConfiguration"])
        #expect(client.upgrade == nil && read.outcomes.isEmpty)
    }

    @Test func aWaiterIsToldInPlaceOfTheDelegate() throws {
        let waiter = CountingWaiter<HandshakeNews>()
        try client.begin(TestCertificates.client(), waiter)
        try server.begin(TestCertificates.server())
        try run()
        #expect(waiter.outcomes == [.served] && client.words == [] && server.words == ["secure"])
    }

    /// The time limit on earlier writes restarts only when the kernel accepts more of their bytes.
    @Test func theTimeOfEarlierWritesIsNotProlonged() throws {
        _ = client.data.enqueue(WritePacket(data: Data(count: 4 << 20), timeout: -1, tag: 1))
        try client.begin(TestCertificates.client(), CountingWaiter<HandshakeNews>())
        _ = client.work()
        let deadline = try #require(client.upgrade?.deadline)
        for _ in 0..<3 {
            _ = client.work()
            #expect(client.upgrade?.deadline == deadline)
        }
        let (upgrade, later) = (try #require(client.upgrade), try #require(Deadline(after: 1000)))
        client.note(upgrade.expire(at: later, client.data, client))
        #expect(client.words.last == "ends: handshakeTimeout")
    }

    @Test func aWaiterThatIsTakenOutIsAnsweredByOneAlone() throws {
        let waiter = CountingWaiter<HandshakeNews>()
        try client.begin(TestCertificates.client(), waiter)
        client.upgrade?.remove(waiter)?(CancellationError())
        #expect(client.upgrade?.remove(waiter) == nil)
        client.upgrade?.refuseAll(AsyncSocketError.closed)
        #expect(waiter.outcomes == [.cancelled])
    }

    // MARK: - Verdicts

    @Test(arguments: [true, false]) func theHandshakeRestsUntilTheVerdict(isAccepted: Bool) throws {
        try beginBoth { client, _ in client.trustEvaluation = .delegate }
        try run()
        let question = try #require(client.upgrade?.state.question)
        let answer = try #require(client.takeQuestion())
        #expect(client.words == [] && client.upgrade?.state.isOpenForData == false)
        // A verdict on another question has no effect.
        client.post(.upgrading(.verdict(!isAccepted, of: TrustQuestionNumber())))
        try run()
        #expect(client.upgrade?.state.question == question && client.words == [])
        answer(isAccepted)
        answer(!isAccepted)
        try run()
        #expect(client.words == (isAccepted ? ["secure"] : ["ends: tls"]))
        #expect((client.upgrade?.state.isSecure == true) == isAccepted)
    }

    /// The trust timeout is separate from the handshake timeout.
    @Test func aVerdictThatDoesNotComeIsANo() throws {
        try beginBoth { client, _ in (client.trustEvaluation, client.trustTimeout) = (.delegate, .seconds(1000)) }
        try run()
        _ = try #require(client.takeQuestion())
        let upgrade = try #require(client.upgrade)
        let deadline = try #require(upgrade.deadline)
        #expect((900...1000).contains(deadline.seconds(since: .now)))
        client.note(upgrade.expire(at: .now, client.data, client))
        #expect(upgrade.state.question != nil)
        client.note(upgrade.expire(at: try #require(Deadline(after: 2000)), client.data, client))
        #expect(upgrade.state.question == nil)
        try run()
        #expect(client.words == ["ends: trustTimeout"])
    }

    @Test func aHandshakeThatIsLateEnds() throws {
        try client.begin(TestCertificates.client())
        _ = client.work()
        let upgrade = try #require(client.upgrade)
        client.note(upgrade.expire(at: .now, client.data, client))
        #expect(client.words == [])
        client.note(upgrade.expire(at: try #require(Deadline(after: 1000)), client.data, client))
        #expect(client.words == ["ends: handshakeTimeout"])
    }

    // MARK: - Requests after the handshake

    private func ask(_ waiter: CountingWaiter<HandshakeNews>? = nil) {
        let request = ClientCertificateRequest(
            isRequired: true, waiter: waiter, waiterDecidesTrust: false, hasDecider: true)
        HandshakeDriver.begin(request, after: server.upgrade, server.data, server)
    }

    private func beginMutual() throws {
        var (ours, theirs) = try TestCertificates.mutual(.certificatesOnRequest())
        ours.allowsPostHandshakeAuthentication = true
        theirs.trustEvaluation = .delegate
        try client.begin(ours)
        try server.begin(theirs)
        try run()
        #expect(client.words == ["secure"] && server.words == ["secure"])
    }

    @Test func aClientIsAskedLater() throws {
        try beginMutual()
        ask()
        #expect(server.upgrade?.state.isSecure == true && server.upgrade?.hasDeadline == true)
        try run()
        let answer = try #require(server.takeQuestion())
        #expect(server.upgrade?.state.isOpenForData == false)
        answer(true)
        try run()
        #expect(server.words == ["known"] && server.upgrade?.state.isSettled == true && server.upgrade?.hasDeadline == false)
        #expect(server.record.withLock { $0.snapshot.session?.value.peerCertificates.isEmpty } == false)
    }

    /// Neither before the handshake nor twice at the same time. Each request fails, and the connection stays
    /// open.
    @Test func aRequestOutOfTurnIsRefused() throws {
        let early = CountingWaiter<HandshakeNews>()
        ask(early)
        #expect(early.outcomes == [.failed(.badConfiguration)])
        try beginMutual()
        let (first, second) = (CountingWaiter<HandshakeNews>(), CountingWaiter<HandshakeNews>())
        ask(first)
        ask(second)
        #expect(first.outcomes == [] && second.outcomes == [.failed(.tls)])
        try run()
        let answer = try #require(server.takeQuestion())
        answer(true)
        try run()
        #expect(first.outcomes == [.served] && server.words == [])
    }
}

extension [ConnectionMessage] {
    fileprivate mutating func taken() -> Self {
        defer { removeAll() }
        return self
    }
}

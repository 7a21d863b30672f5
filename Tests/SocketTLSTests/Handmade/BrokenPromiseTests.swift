import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

/// Peers that break exactly one rule of TLS 1.3, which no library does. The connection closes with an alert,
/// the error is attributed to the peer, and no invalid data is delivered, in both styles.
@Suite(.timeLimit(.patient)) struct BrokenPromiseTests {
    enum Style: CaseIterable, Sendable {
        case task, delegate
    }

    /// The result on our side.
    private struct Outcome {
        var isSecure = false
        var text = ""
        var error: AsyncSocketError?
        var session: TLSResumableSession?
    }

    private let fixture: Fixture
    private let own: (server: HandmadeIdentity, client: HandmadeIdentity)
    private let stranger: HandmadeIdentity

    init() throws {
        var fixture = try Fixture(.tls13)
        fixture.client.minimumVersion = .tls12
        fixture.server.minimumVersion = .tls12
        fixture.client.policy.groups = ["x25519", "secp256r1"]
        fixture.client.applicationProtocols = ["echo"]
        fixture.server.applicationProtocols = ["echo"]
        fixture.client.resumption = .none
        fixture.client.allowsPostHandshakeAuthentication = false
        own = (
            HandmadeIdentity(try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)),
            HandmadeIdentity(try fixture.authority.issue(.client(commonName: "alice"), signedBy: .root))
        )
        stranger = HandmadeIdentity(try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root))
        self.fixture = fixture
    }

    // MARK: - Servers

    @Test(arguments: Style.allCases) func aServerThatKeepsAllPromisesIsServed(style: Style) async throws {
        try await expectService(.server, fixture.client, style)
        var plan = HandmadePlan.server
        plan.retries = [[(44, [0, 1, 0])]]
        try await expectService(plan, fixture.client, style)
    }

    /// OpenSSL accepts a context that must be empty according to RFC 8446, 4.3.2, and echoes it. This is
    /// harmless.
    @Test(arguments: Style.allCases) func aContextInARequestIsTaken(style: Style) async throws {
        var plan = HandmadePlan.server
        plan.put(.message(13, [1, 7] + Wire.extensions([(13, [0, 2, 4, 3])])), before: .certificate)
        try await expectService(plan, fixture.client, style)
    }

    @Test(arguments: BrokenPromise.serverHellos + BrokenPromise.serverFlights, Style.allCases)
    func aServerThatBreaksOneIsRefused(promise: BrokenPromise, style: Style) async throws {
        try await expectRefusal(promise, fixture.client, style)
    }

    /// A client with OpenSSL 3.5 drops it and continues, because it carries no data.
    @Test(arguments: Style.allCases) func aLateChangeOfCiphersIsRefusedOrCarriesNothing(style: Style) async throws {
        try await expectRefusal(BrokenPromise.lateChange(.client), fixture.server, style)
        let promise = BrokenPromise.lateChange(.server)
        guard TLSRawPublicKeys.isSupported else { return try await expectRefusal(promise, fixture.client, style) }
        let (outcome, heard) = try await converse(promise.plan, fixture.client, style, until: "evil\n")
        #expect(outcome.text == "a line\nevil\n" && outcome.error == nil, "\(outcome) \(heard)")
    }

    @Test(arguments: BrokenPromise.serversLate, Style.allCases)
    func aServerThatBreaksOneLaterIsRefused(promise: BrokenPromise, style: Style) async throws {
        try await expectRefusal(promise, fixture.client, style)
    }

    /// `StapledStatusTests` does the same with TLS 1.2.
    @Test(arguments: [[0], [UInt8](repeating: 0x30, count: 300)] as [[UInt8]], Style.allCases)
    func aServerThatStaplesNoAnswerIsRefused(bytes: [UInt8], style: Style) async throws {
        var (plan, settings) = (HandmadePlan.server, fixture.client)
        settings.values.ocspStapling = .requested
        plan.certificateExtensions = [(5, [1] + Wire.vector(bytes, 3))]
        let (outcome, heard) = try await converse(plan, settings, style, until: "a line\n")
        let error = try #require(outcome.error?.tls, "\(outcome) \(heard)")
        #expect(error.code == .certificateRejected && error.sentAlert?.rawValue == 113, "\(error)")
        #expect(error.message.contains("an OCSP response that contains no status"), "\(error)")
        #expect(!outcome.isSecure && outcome.text.isEmpty && heard.alerts == [error.sentAlert], "\(heard)")
    }

    /// A server that resumes a session after a second ClientHello and claims to have accepted the early data.
    /// In contrast, a server that does not claim this receives the data after the handshake.
    @Test(arguments: Style.allCases) func aServerThatTakesEarlyDataTooLateIsRefused(style: Style) async throws {
        var (plan, settings) = (HandmadePlan.server, fixture.client)
        plan.sendTicket()
        settings.resumption = .store(CarelessStore())
        let (first, peer) = try await converse(plan, settings, .task, until: "a line\n")
        settings.resumption = .session(try #require(first.session, "\(first) \(peer)"))
        settings.earlyData = TLSEarlyData(Array("early\n".utf8))
        let promise = BrokenPromise.earlyDataBehindAWish(resumingWith: peer.sessionKey)
        try await expectRefusal(promise, settings, style)
        plan = promise.plan
        plan.encryptedExtensions = []
        let (outcome, heard) = try await converse(plan, settings, style, until: "a line\n")
        #expect(outcome.isSecure && outcome.text == "a line\n" && outcome.error == nil, "\(outcome)")
        #expect(heard.hasFinished && heard.text == "early\n" && heard.alerts == [.closeNotify], "\(heard)")
    }

    // MARK: - Clients

    @Test(arguments: Style.allCases) func aClientThatKeepsAllPromisesIsServed(style: Style) async throws {
        try await expectService(.client, fixture.server, style)
        try await expectService(.clientWithCertificate, asking(), style)
    }

    @Test(arguments: BrokenPromise.clientHellos + BrokenPromise.clientFlights, Style.allCases)
    func aClientThatBreaksOneIsRefused(promise: BrokenPromise, style: Style) async throws {
        try await expectRefusal(promise, fixture.server, style)
    }

    @Test(arguments: BrokenPromise.clientsLate, Style.allCases)
    func aClientThatBreaksOneLaterIsRefused(promise: BrokenPromise, style: Style) async throws {
        try await expectRefusal(promise, fixture.server, style)
    }

    @Test(arguments: BrokenPromise.clientsThatAreAsked, Style.allCases)
    func aClientThatIsAskedAndBreaksOneIsRefused(promise: BrokenPromise, style: Style) async throws {
        try await expectRefusal(promise, asking(), style)
    }

    private func asking() throws -> TLSServerSettings {
        var settings = fixture.server
        settings.values.clientCertificates = .required
        settings.trustRoots = try fixture.authority.roots
        return settings
    }

    // MARK: - Data after the end

    @Test(arguments: [HandmadePlan.server, .client].map(\.isServer), Style.allCases)
    func nothingBehindACloseNotifyIsDelivered(isServer: Bool, style: Style) async throws {
        var plan = isServer ? HandmadePlan.server : .client
        plan.steps += [.sealed(21, [1, 0]), .data("evil\n")]
        let (outcome, heard) =
            isServer
            ? try await converse(plan, fixture.client, style, until: "evil\n")
            : try await converse(plan, fixture.server, style, until: "evil\n")
        #expect(outcome.isSecure)
        #expect(outcome.text == "a line\n")
        // A delegate is notified only by the end of the connection. A task's read returns nil.
        #expect(outcome.error?.code == (style == .delegate ? .closedByPeer : nil))
        #expect(heard.alerts == [.closeNotify])
    }

    // MARK: - Expectations

    private func expectService(_ plan: HandmadePlan, _ settings: TLSSettings<some TLSRole.Side>, _ style: Style) async throws {
        let (outcome, heard) = try await converse(plan, settings, style, until: "a line\n")
        #expect(outcome.isSecure && outcome.text == "a line\n" && outcome.error == nil, "\(outcome)")
        #expect(heard.hasFinished && heard.alerts == [.closeNotify], "\(heard)")
    }

    private func expectRefusal(_ promise: BrokenPromise, _ settings: TLSSettings<some TLSRole.Side>, _ style: Style) async throws
    {
        let (outcome, heard) = try await converse(promise.plan, settings, style, until: promise.isLate ? "evil\n" : "\n")
        let error = try #require(outcome.error, "\(outcome) \(heard)")
        #expect(error.fault == .peer || error.fault == .certificate, "\(error)")
        #expect(error.tls?.sentAlert.map(promise.alerts.contains) == true, "\(error)")
        #expect(outcome.isSecure == promise.isLate, "\(error)")
        #expect(outcome.text == (promise.isLate ? "a line\n" : ""), "\(error)")
        #expect(heard.alerts == [error.tls?.sentAlert].compactMap(\.self), "\(heard) \(error)")
        #expect(heard.text.isEmpty)
        if promise.plan.isServer { #expect(heard.hasFinished == promise.isLate) }
    }

    /// Connects our side with `settings` to a peer with `plan`. Ours closes when it has read `end`.
    private func converse(
        _ plan: HandmadePlan, _ settings: TLSSettings<some TLSRole.Side>, _ style: Style, until end: String
    ) async throws -> (Outcome, HandmadePeer.Heard) {
        let (theirs, descriptor) = try connection()
        let peer = HandmadePeer(
            plan: plan, identity: plan.isServer ? own.server : own.client, stranger: stranger)
        // The peer blocks its thread.
        let speaking = Task(executorPreference: TestThreads()) { peer.speak(on: theirs) }
        switch style {
        case .task: return (try await readByTask(descriptor, settings, until: end), await speaking.value)
        case .delegate: return (try await readByDelegate(descriptor, settings, until: end), await speaking.value)
        }
    }

    /// The descriptor is the only one of our side, so closing it closes the connection.
    private func connection() throws -> (theirs: RawSocket, ours: Int32) {
        let (theirs, ours) = try RawSocket.pair()
        return (theirs, ours.duplicate())
    }

    private func readByTask(_ descriptor: Int32, _ settings: TLSSettings<some TLSRole.Side>, until end: String) async throws
        -> Outcome
    {
        let socket = try AsyncSocket(adopting: descriptor)
        var outcome = Outcome()
        do {
            try await socket.startTLS(settings: settings)
            outcome.isSecure = true
            while !outcome.text.hasSuffix(end), let bytes = try await socket.read() {
                outcome.text += String(decoding: bytes, as: UTF8.self)
            }
            outcome.session = socket.tlsSession?.resumable
        } catch let error as AsyncSocketError {
            outcome.error = error
        }
        socket.disconnect()
        return outcome
    }

    private func readByDelegate(_ descriptor: Int32, _ settings: TLSSettings<some TLSRole.Side>, until end: String) async throws
        -> Outcome
    {
        let recorder = Recorder { socket, told in
            switch told {
            case .secured, .read: socket.readData(withTimeout: .patient, tag: 0)
            default: break
            }
        }
        let socket = try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        try socket.beginTLS(settings: settings)
        var outcome = Outcome()
        while true {
            switch await recorder.next() {
            case .secured: outcome.isSecure = true
            case .read(let data, _):
                outcome.text += String(decoding: data, as: UTF8.self)
                if outcome.text.hasSuffix(end) { socket.disconnect() }
            case .disconnected(let error):
                outcome.error = error
                return outcome
            default: break
            }
        }
    }
}

import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTestTraits
import Testing

@testable import SocketTLS

/// The expiry of a client's sessions. Each input that can expire is the first to do so in one case.
@Suite(.timeLimit(.patient), .ownThreads) struct SessionEndTests {
    private func session(_ connection: EarlyConversation) throws -> TLSResumableSession {
        try #require(connection.client.session?.resumable, "\(String(describing: connection.clientError))")
    }

    /// Returns the same session with a change.
    private func changed(
        _ session: TLSResumableSession, certificates: [TLSCertificate]? = nil, verified: Date? = nil, evidenceEnd: Date? = nil
    ) -> TLSResumableSession {
        TLSResumableSession(
            session.handle, certificates ?? session.peerCertificates, session.verdict, otherFaults: session.otherFaults,
            verified: verified ?? session.verified, evidenceEnd: evidenceEnd ?? session.evidenceEnd, session.scope)
    }

    @Test(arguments: versions, SessionInput.allCases)
    func aSessionEndsWithTheFirstOfItsInputs(version: TLSProtocolVersion, input: SessionInput) throws {
        let chain = try EndingChain(input)
        var fixture = try chain.fixture(version, shownBy: .server)
        let session = try session(fixture.connection())
        let left = session.end.timeIntervalSinceNow
        #expect((Double(chain.seconds) - 60...Double(chain.seconds) + 1).contains(left), "\(left)")
        #expect(session.isUsable && session.isUsable(at: session.end - 1))
        #expect(!session.isUsable(at: session.end) && !session.isUsable(at: session.end + 100_000))
        // Neither encoding nor using a session renews it, except for the ticket, which is replaced.
        fixture.client.resumption = .session(try TLSResumableSession(bytes: session.bytes))
        let second = try fixture.connection()
        #expect(second.client.session?.isResumed == true)
        #expect(try input == .ticket || abs(self.session(second).end.timeIntervalSince(session.end)) <= 1)
    }

    /// Without a trusted chain, only the certificates determine the expiry.
    @Test(arguments: versions) func aSessionAcceptedByHandEndsWithItsCertificates(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version, validity: .endsSoon)
        fixture.server.values.tickets = .issued(1)
        fixture.client.trustRoots = try Fixture.stranger.roots
        fixture.client.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(try pair.exchange([1], from: .server) == [1])
        let end = try #require(pair.client.session?.resumable).end.timeIntervalSinceNow
        #expect((500...601).contains(end), "\(end)")
    }

    /// The year 9999 (RFC 5280, 4.1.2.5) in certificates and in a list.
    @Test(arguments: [true, false]) func proofsWithoutAnEndAreInTheBytes(hasList: Bool) throws {
        let days = -1..<2_900_000
        let root = try HandmadeCertificate("Root", HandmadeCertificate.authority, days: days)
        let leaf = try HandmadeCertificate("Server", HandmadeCertificate.server(), days: days, signedBy: root)
        let list = try TemporaryFile(bytes: root.revocationList(days: days))
        var fixture = try Fixture(.tls13, leaf: leaf, roots: [root])
        fixture.server.values.tickets = .issued(1)
        if hasList { fixture.client.values.rules.revocationLists = [.file(path: list.path)] }
        let session = try session(fixture.connection())
        #expect(try #require(session.evidenceEnd) > Date() + 1e11)
        fixture.client.resumption = .session(try TLSResumableSession(bytes: session.bytes))
        #expect(try fixture.connection().client.session?.isResumed == true)
    }

    /// A session that has expired, or whose verification is in the future, is not offered, even if a store
    /// returns it.
    @Test(arguments: versions) func noSessionIsOfferedOutOfItsTime(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.values.tickets = .issued(1)
        let session = try session(fixture.connection())
        let expired = try fixture.authority.issue(.server(names: [Fixture.host]), validity: .expired).identity()
        let now = Date()
        let cases: [(TLSResumableSession, Bool)] = [
            (session, true), (changed(session, verified: now + 3600), false), (changed(session, verified: now + 160), false),
            (changed(session, verified: now + 30), true), (changed(session, verified: now - 604_700), true),
            (changed(session, verified: now - 604_801), false), (changed(session, evidenceEnd: now + 100), true),
            (changed(session, evidenceEnd: now - 1), false),
            (changed(session, certificates: session.peerCertificates + expired.certificateChain), false),
        ]
        for (index, (session, isUsable)) in cases.enumerated() {
            #expect(session.isUsable == isUsable, "\(index)")
            for source in [TLSResumption.session(session), .store(CarelessStore([session]))] {
                fixture.client.resumption = source
                let connection = try fixture.connection()
                #expect(connection.client.session?.isResumed == isUsable, "\(index)")
                #expect(connection.server.session?.isResumed == isUsable, "\(index)")
                guard isUsable else { continue }
                // The verdict keeps its age.
                let next = try self.session(connection)
                #expect(next.verified == session.verified && next.evidenceEnd == session.evidenceEnd, "\(index)")
                #expect(next.end <= session.verified + 604_800, "\(index)")
            }
        }
    }

    /// The server does not issue a new ticket when it resumes the session. A TLS 1.2 session can then be used
    /// again.
    @Test(arguments: versions) func aTicketOfTLS13DoesNotComeBack(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.values.tickets = .issued(1)
        let store = TLSInMemorySessionStore()
        fixture.client.resumption = .store(store)
        #expect(try fixture.connection().client.session?.isResumed == false && store.count == 1)
        #expect(try fixture.connection(greeting: nil).client.session?.isResumed == true)
        #expect(store.count == (version == .tls12 ? 1 : 0))
        #expect(try fixture.connection().client.session?.isResumed == (version == .tls12))
    }
}

/// The expiry of the sessions of a server's clients, by the server's clock.
@Suite(.timeLimit(.patient), .ownThreads) struct ServerSessionEndTests {
    private final class Keys: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init() throws {
            keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80)))
        }
    }

    private let clock = Locked(10_000)

    private func context(_ settings: TLSSettings<some TLSRole.Side>) throws -> TLSContext {
        try TLSContext(for: settings) { [clock] in clock.withLock { $0 } }
    }

    /// Connects at a time of the server's clock, and returns the resulting session.
    private func connect(
        _ fixture: Fixture, to context: TLSContext, at time: Int, resuming session: TLSResumableSession? = nil
    ) throws -> (isResumed: Bool?, session: TLSResumableSession?) {
        clock.withLock { $0 = time }
        var settings = fixture.client
        if let session { settings.resumption = .session(session) }
        let connection = try fixture.connection(as: settings, to: context)
        #expect(connection.client.session?.isResumed == connection.server.session?.isResumed)
        return (connection.server.session?.isResumed, connection.client.session?.resumable)
    }

    @Test(arguments: versions, SessionInput.ofClients)
    func aSessionEndsWithTheFirstOfItsInputs(version: TLSProtocolVersion, input: SessionInput) throws {
        let chain = try EndingChain(input)
        let fixture = try chain.fixture(version, shownBy: .client)
        let context = try context(fixture.server)
        let session = try #require(try connect(fixture, to: context, at: 10_000).session)
        let later = try connect(fixture, to: context, at: 10_000 + chain.seconds - 60, resuming: session)
        #expect(later.isResumed == true)
        // Resuming a session does not extend its lifetime.
        for session in [session, try #require(later.session)] {
            for seconds in [chain.seconds, chain.seconds + 3600, 1_000_000] {
                #expect(try connect(fixture, to: context, at: 10_000 + seconds, resuming: session).isResumed == false)
            }
        }
    }

    @Test(arguments: versions, [true, false])
    func aClockThatIsSetBackRenewsNoSession(version: TLSProtocolVersion, sharesKeys: Bool) throws {
        var fixture = try Fixture(version)
        fixture.server.sessionTickets = .issued(1, keys: sharesKeys ? try Keys() : nil)
        let context = try context(fixture.server)
        let session = try #require(try connect(fixture, to: context, at: 10_000).session)
        for (time, isResumed) in [
            (10_000, true), (13_599, true), (9_999, false), (5_000, false), (-100_000, false), (10_001, true),
        ] {
            #expect(try connect(fixture, to: context, at: time, resuming: session).isResumed == isResumed, "\(time)")
        }
    }
}

import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import Testing

@Suite struct SessionTicketTests {
    private var fixture: Fixture

    init() throws {
        fixture = try Fixture()
        fixture.server.minimumVersion = .tls12
        fixture.server.maximumVersion = nil
        fixture.server.sessionTicketCount = 2
    }

    private func server(_ settings: TLSSettings? = nil) throws -> TLSEngine {
        let settings = settings ?? fixture.server
        return try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
    }

    private func expectResumption(_ expected: Bool, of peer: RawPeer, by server: TLSEngine) {
        #expect(peer.isResumed == expected)
        #expect(server.session?.isResumed == expected)
        peer.send("hello")
        peer.carryTo(server)
        #expect(server.readAll().text == "hello")
    }

    @Test func aServerSendsNoTicketUnlessItIsToldTo() throws {
        var settings = fixture.server
        settings.sessionTicketCount = 0
        #expect(TLSSettings.server(identity: try #require(settings.identity)).sessionTicketCount == 0)
        #expect(try RawPeer.client(of: server(settings)).tickets == 0)
    }

    @Test(arguments: [1, 2, 8])
    func aClientThatComesBackResumes(count: Int) throws {
        var settings = fixture.server
        settings.sessionTicketCount = count
        let first = try RawPeer.client(of: server(settings))
        #expect(first.tickets == count)
        let second = try server(settings)
        let peer = try RawPeer.client(of: second, resuming: first.session())
        expectResumption(true, of: peer, by: second)
        #expect(peer.tickets == 1)
        #expect(peer.ticket() != first.ticket())
        let third = try server(settings)
        expectResumption(true, of: try RawPeer.client(of: third, resuming: peer.session()), by: third)
    }

    @Test func onlyConnectionsWhoseSettingsAgreeResume() throws {
        let session = try RawPeer.client(of: server()).session()
        var sameForTLS = fixture.server
        sameForTLS.handshakeTimeout = 7
        let same = try server(sameForTLS)
        expectResumption(true, of: try RawPeer.client(of: same, resuming: session), by: same)
        var others = [fixture.server, fixture.server, fixture.server]
        others[0].applicationProtocols = ["h2"]
        others[1].identity = try fixture.authority.identity(.server(names: ["other"]))
        others[2].sessionTicketCount = 0
        for settings in others {
            let other = try server(settings)
            expectResumption(false, of: try RawPeer.client(of: other, resuming: session), by: other)
        }
    }

    @Test func theApplicationProtocolIsAgreedOnAgain() throws {
        var settings = fixture.server
        settings.applicationProtocols = ["h2", "http/1.1"]
        let first = try server(settings)
        let session = try RawPeer.client(of: first, offering: "h2,http/1.1").session()
        #expect(first.session?.applicationProtocol == "h2")
        let second = try server(settings)
        expectResumption(true, of: try RawPeer.client(of: second, resuming: session, offering: "http/1.1"), by: second)
        #expect(second.session?.applicationProtocol == "http/1.1")
    }

    @Test func aSessionIsResumedUnderAnotherName() throws {
        let first = try server()
        let session = try RawPeer.client(of: first, named: Fixture.host).session()
        #expect(first.session?.serverName == Fixture.host)
        for name in ["other.example.org", nil] {
            let second = try server()
            expectResumption(true, of: try RawPeer.client(of: second, resuming: session, named: name), by: second)
            #expect(second.session?.serverName == name)
        }
    }

    /// The first byte of a ticket is of its key's name, the last of its HMAC.
    @Test(arguments: [0, 16, 40, -1])
    func aTicketThatWasChangedMeansAFullHandshake(place: Int) throws {
        let first = try RawPeer.client(of: server())
        var session = try first.session()
        let (ticket, all) = (first.ticket(), session)
        let start = try #require((0...(all.count - ticket.count)).first { all[$0...].starts(with: ticket) })
        session[start + (place < 0 ? ticket.count + place : place)] ^= 1
        let second = try server()
        let peer = try RawPeer.client(of: second, resuming: session)
        expectResumption(false, of: peer, by: second)
        #expect(peer.tickets == 2)
    }

    /// Neither with the extension of TLS 1.2, empty as it is in the first ClientHello, nor with a ticket of
    /// TLS 1.3 in it.
    @Test func nothingIsResumedWithTLS12() throws {
        let ticket = try RawPeer.client(of: server()).ticket()
        for isFirst in [true, false] {
            let (server, peer) = (try server(), try RawPeer(.tls12))
            if !isFirst {
                ticket.withUnsafeBytes {
                    _ = SSL_set_session_ticket_ext(peer.ssl, .init(mutating: $0.baseAddress), Int32($0.count))
                }
            }
            peer.countTickets()
            peer.shakeHands(with: server)
            #expect(server.session?.protocolVersion == .tls12)
            expectResumption(false, of: peer, by: server)
            #expect(peer.tickets == 0)
            var length: UInt32 = 0
            SSL_SESSION_get_id(SSL_get_session(peer.ssl), &length)
            #expect(length == 0)
        }
    }

    @Test func dataReachesOurClientBehindEightTickets() throws {
        var settings = fixture
        settings.server.sessionTicketCount = 8
        let pair = try settings.pair(chunk: 7)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(try pair.exchange([1, 2, 3], from: .client) == [1, 2, 3])
        #expect(try pair.exchange([4, 5, 6], from: .server) == [4, 5, 6])
    }
}

/// With a clock of the test's own.
@Suite struct TicketAgeTests {
    private let clock = Locked(0)
    private let settings: TLSSettings
    private let context: TLSContext

    init() throws {
        var settings = try Fixture().server
        settings.sessionTicketCount = 1
        self.settings = settings
        context = try TLSContext(for: settings) { [clock] in clock.withLock { $0 } }
    }

    private func connect(at time: Int, resuming session: [UInt8]? = nil) throws -> RawPeer {
        clock.withLock { $0 = time }
        let server = try TLSEngine(context: context, settings: settings)
        let peer = try RawPeer.client(of: server, resuming: session)
        #expect(server.session?.isResumed == peer.isResumed)
        return peer
    }

    @Test func aTicketOutlivesTheHourOfItsKey() throws {
        _ = try connect(at: 0)
        let first = try connect(at: 3599)
        #expect(first.ticketLifetime == 3600)
        _ = try connect(at: 3600)
        #expect(try connect(at: 7198, resuming: first.session()).isResumed)
    }

    @Test func aTicketIsRefusedWhenItsSessionIsAnHourOld() throws {
        let first = try connect(at: 0)
        let second = try connect(at: 3600, resuming: first.session())
        #expect(!second.isResumed)
        #expect(second.tickets == 1 && second.ticketLifetime == 3600)
    }

    @Test func resumingDoesNotMakeASessionLiveLonger() throws {
        let first = try connect(at: 100)
        let second = try connect(at: 3600, resuming: first.session())
        #expect(second.isResumed && second.ticketLifetime == 100)
        let third = try connect(at: 3699, resuming: second.session())
        #expect(third.isResumed && third.ticketLifetime == 1)
        #expect(try !connect(at: 3700, resuming: third.session()).isResumed)
    }

}

/// Times count from the creation of the first key, at 100.
@Suite final class TicketKeyRingTests {
    private var ring = TicketKeyRing()

    private func sealing(at time: Int) throws -> TicketKey {
        let key = ring.keyForSealing(at: 100 + time)
        return try #require(key)
    }

    private func opens(_ key: TicketKey, at time: Int) -> Bool {
        key.name.withUnsafeBytes { ring.key(named: $0, at: 100 + time) === key }
    }

    @Test(arguments: [nil, 3600, 7199])
    func aKeyEncryptsForAnHourAndDecryptsForTwo(successor: Int?) throws {
        let key = try sealing(at: 0)
        #expect(try sealing(at: 3599) === key)
        if let successor { #expect(try sealing(at: successor) !== key) }
        #expect(opens(key, at: 7199))
        #expect(!opens(key, at: 7200))
        // It is gone, and not only refused.
        #expect(!opens(key, at: 0))
    }

    @Test func eachKeyHasItsOwnName() throws {
        let (first, second) = (try sealing(at: 0), try sealing(at: 3600))
        #expect(first.name != second.name)
        #expect(opens(first, at: 3600) && opens(second, at: 3600))
        #expect(!opens(first, at: 7200) && opens(second, at: 7200))
    }

    @Test func whatIsOverGoesWhenATicketIsMadeToo() throws {
        let key = try sealing(at: 0)
        #expect(try sealing(at: 100_000) !== key)
        #expect(!opens(key, at: 0))
    }
}

import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestSupport
import Testing

@Suite struct SessionTicketTests {
    private let fixture: Fixture

    init() throws {
        fixture = try .resuming()
    }

    private func server(_ settings: TLSServerSettings? = nil) throws -> TLSEngine { try fixture.engine(settings) }

    @Test func aServerSendsNoTicketUnlessItIsToldTo() throws {
        var settings = fixture.server
        settings.values.tickets = .none
        #expect(TLSSettings.server(identity: try #require(settings.identity)).clients == .anyone)
        #expect(try RawPeer.client(of: server(settings)).tickets == 0)
    }

    @Test(arguments: [1, 2, 8])
    func aClientThatComesBackResumes(count: Int) throws {
        var settings = fixture.server
        settings.values.tickets = .issued(count)
        let first = try RawPeer.client(of: server(settings))
        #expect(first.tickets == count)
        let second = try server(settings)
        let peer = try RawPeer.client(of: second, resuming: first.session())
        peer.expectResumption(true, by: second)
        #expect(peer.tickets == 1)
        #expect(peer.ticket() != first.ticket())
        let third = try server(settings)
        try RawPeer.client(of: third, resuming: peer.session()).expectResumption(true, by: third)
    }

    @Test func onlyConnectionsWhoseSettingsAgreeResume() throws {
        let session = try RawPeer.client(of: server()).session()
        var sameForTLS = fixture.server
        sameForTLS.handshakeTimeout = .seconds(7)
        let same = try server(sameForTLS)
        try RawPeer.client(of: same, resuming: session).expectResumption(true, by: same)
        var others = [fixture.server, fixture.server, fixture.server]
        others[0].applicationProtocols = ["h2"]
        others[1].identity = try fixture.authority.identity(.server(names: ["other"]))
        others[2].values.tickets = .none
        for settings in others {
            let other = try server(settings)
            try RawPeer.client(of: other, resuming: session).expectResumption(false, by: other)
        }
    }

    @Test func theApplicationProtocolIsAgreedOnAgain() throws {
        var settings = fixture.server
        settings.applicationProtocols = ["h2", "http/1.1"]
        let first = try server(settings)
        let session = try RawPeer.client(of: first, offering: "h2,http/1.1").session()
        #expect(first.session?.applicationProtocol == "h2")
        let second = try server(settings)
        try RawPeer.client(of: second, resuming: session, offering: "http/1.1").expectResumption(true, by: second)
        #expect(second.session?.applicationProtocol == "http/1.1")
    }

    @Test func aSessionIsResumedUnderAnotherName() throws {
        let first = try server()
        let session = try RawPeer.client(of: first, named: Fixture.host).session()
        #expect(first.session?.serverName == Fixture.host)
        for name in ["other.example.org", nil] {
            let second = try server()
            try RawPeer.client(of: second, resuming: session, named: name).expectResumption(true, by: second)
            #expect(second.session?.serverName == name)
        }
    }

    /// The first byte of a ticket belongs to the name of its key, the last to its HMAC.
    @Test(arguments: [0, 16, 40, -1])
    func aTicketThatWasChangedMeansAFullHandshake(place: Int) throws {
        let first = try RawPeer.client(of: server())
        var session = try first.session()
        let (ticket, all) = (first.ticket(), session)
        let start = try #require((0...(all.count - ticket.count)).first { all[$0...].starts(with: ticket) })
        session[start + (place < 0 ? ticket.count + place : place)] ^= 1
        let second = try server()
        let peer = try RawPeer.client(of: second, resuming: session)
        peer.expectResumption(false, by: second)
        #expect(peer.tickets == 2)
    }

    @Test func ticketsOfTLS12AreResumedToo() throws {
        let first = try RawPeer.client(.tls12, of: server())
        #expect(first.tickets == 1 && first.ticketLifetime == 3600)
        var peer = first
        for _ in 0..<3 {
            let again = try server()
            peer = try RawPeer.client(.tls12, of: again, resuming: peer.session())
            peer.expectResumption(true, by: again)
            #expect(again.session?.protocolVersion == .tls12)
        }
    }

    @Test func withoutTicketsNothingIsResumedInTLS12() throws {
        var settings = fixture.server
        settings.values.tickets = .none
        let first = try RawPeer.client(.tls12, of: server(settings))
        #expect(first.tickets == 0)
        var length: UInt32 = 0
        SSL_SESSION_get_id(SSL_get_session(first.ssl), &length)
        #expect(length == 0)
        let second = try server(settings)
        try RawPeer.client(.tls12, of: second, resuming: first.session()).expectResumption(false, by: second)
    }

    @Test func aTicketLeavesWithTheFirstData() throws {
        let (server, peer) = (try server(), try RawPeer(.tls13))
        peer.countTickets()
        peer.shakeHands(with: server)
        _ = peer.read()
        #expect(server.handshake().isComplete && peer.tickets == 0 && server.output.isEmpty)
        _ = [UInt8(1)].withUnsafeBytes { server.write($0) }
        peer.carryFrom(server)
        #expect(peer.read() != nil && peer.tickets == 2)
        _ = [UInt8(1)].withUnsafeBytes { server.write($0) }
        peer.carryFrom(server)
        #expect(peer.read() != nil && peer.tickets == 2)
    }

    // MARK: - Client certificates

    private func asking(_ evaluation: TLSTrustEvaluation = .builtIn) throws -> TLSServerSettings {
        var fixture = fixture
        try fixture.askForClientCertificate()
        fixture.server.trustEvaluation = evaluation
        return fixture.server
    }

    private func clientPEM() throws -> String {
        try fixture.authority.issue(.client(commonName: "alice"), signedBy: .root).pem
    }

    @Test(arguments: versions) func aResumedSessionKeepsTheClientCertificate(_ version: TLSProtocolVersion) throws {
        let settings = try asking()
        let first = try server(settings)
        let peer = try RawPeer.client(version, of: first, showing: clientPEM())
        #expect(first.session?.peerCertificates.first?.commonName == "alice")
        let second = try server(settings)
        try RawPeer.client(version, of: second, resuming: peer.session()).expectResumption(true, by: second)
        #expect(second.session?.peerCertificates.first?.commonName == "alice")
    }

    @Test(arguments: versions) func resumptionRequiresANewTrustDecisionAboutTheClient(_ version: TLSProtocolVersion) throws {
        let settings = try asking(.delegate)
        let peer = try RawPeer.client(version, of: server(settings), showing: clientPEM(), deciding: true)
        let second = try server(settings)
        let again = try RawPeer.client(version, of: second, resuming: peer.session(), deciding: true)
        again.expectResumption(true, by: second)
        let third = try server(settings)
        #expect(throws: TestFailure.self) {
            _ = try RawPeer.client(version, of: third, resuming: again.session(), deciding: false)
        }
        #expect(third.session == nil)
    }

    @Test func aTicketEndsWithTheClientsCertificate() throws {
        let settings = try asking()
        let issued = try fixture.authority.issue(.client(commonName: "alice"), validity: .endsSoon, signedBy: .root)
        let peer = try RawPeer.client(of: server(settings), showing: issued.pem)
        #expect((500...600).contains(peer.ticketLifetime))
    }

    @Test func withoutTicketsClientsWithCertificatesResumeNothing() throws {
        var settings = try asking()
        #expect(try RawPeer.client(of: server(settings), showing: clientPEM()).tickets == 2)
        settings.sessionTickets = .none
        #expect(try RawPeer.client(of: server(settings), showing: clientPEM()).tickets == 0)
    }

    // MARK: - Shared keys

    private final class Keys: TLSTicketKeySource {
        private let current: Locked<TLSTicketKeys>

        init(_ keys: TLSTicketKeys) { current = Locked(keys) }

        var keys: TLSTicketKeys {
            get { current.withLock { $0 } }
            set { current.withLock { $0 = newValue } }
        }
    }

    private static func key(_ number: UInt8) throws -> TLSTicketKey {
        try TLSTicketKey(bytes: [UInt8](repeating: number, count: 80))
    }

    /// Contexts that share only the keys, as in two processes.
    @Test(arguments: versions) func serversThatShareKeysResumeEachOthersSessions(_ version: TLSProtocolVersion) throws {
        let keys = Keys(TLSTicketKeys(current: try Self.key(1), decryptionOnly: [try Self.key(2)]))
        var settings = try asking()
        settings.clients = .certificates(.required)
        settings.sessionTickets = .issued(2, keys: keys)
        func server(_ settings: TLSServerSettings) throws -> TLSEngine {
            try TLSEngine(context: TLSContext.context(for: settings, in: ContextCache(limit: 1)), settings: settings)
        }
        let first = try RawPeer.client(version, of: server(settings), showing: clientPEM())
        let second = try server(settings)
        try RawPeer.client(version, of: second, resuming: first.session()).expectResumption(true, by: second)
        // The next key: old tickets still count, and once more is too much.
        keys.keys = TLSTicketKeys(current: try Self.key(2), decryptionOnly: [try Self.key(1), try Self.key(3)])
        let third = try server(settings)
        try RawPeer.client(version, of: third, resuming: first.session()).expectResumption(true, by: third)
        keys.keys = TLSTicketKeys(current: try Self.key(3), decryptionOnly: [try Self.key(2)])
        let fourth = try server(settings)
        try RawPeer.client(version, of: fourth, resuming: first.session(), showing: clientPEM()).expectResumption(
            false, by: fourth)
        // Other servers with the same keys.
        let changes: [(inout TLSServerSettings) -> Void] = [
            { $0.applicationProtocols = ["h2"] }, { $0.values.rules.isStrict = true },
        ]
        for change in changes {
            var others = settings
            change(&others)
            let session = try RawPeer.client(version, of: server(settings), showing: clientPEM()).session()
            let other = try server(others)
            try RawPeer.client(version, of: other, resuming: session, showing: clientPEM()).expectResumption(false, by: other)
        }
    }

    private static func lines(_ numbers: UInt8...) -> String {
        numbers.map { Data(repeating: $0, count: 80).base64EncodedString() }.joined(separator: "\n")
    }

    /// Every time, not only the first.
    @Test func aFileThatChangesIsReadAgain() async throws {
        let file = try TemporaryFile(Self.lines(1, 2, 3))
        let keys = try TLSTicketKeyFile(path: file.path)
        for number in 3...5 as ClosedRange<UInt8> {
            let next = try TemporaryFile(Self.lines(number - 1, number, number + 1))
            try #require(rename(next.path, file.path) == 0)
            try await eventually("the key is \(number)") { keys.keys.current.name[0] == number }
        }
    }

    /// A partially written file may have the size and date of the complete one.
    @Test func aFileThatCouldNotBeReadIsTriedAgain() throws {
        let file = try TemporaryFile(Self.lines(1, 2, 3))
        let keys = try TLSTicketKeyFile(path: file.path)
        let times = [timespec](repeating: timespec(tv_sec: 1_700_000_000, tv_nsec: 0), count: 2)
        let good = Self.lines(2, 3, 4)
        for (text, key) in [(String(repeating: "x", count: good.utf8.count), 2), (good, 3)] as [(String, UInt8)] {
            try file.replace(with: text)
            #expect(utimensat(AT_FDCWD, file.path, times, 0) == 0)
            keys.reload()
            #expect(keys.keys.current.name[0] == key && (keys.failure == nil) == (key == 3))
        }
    }

    @Test func aFileHasThreeKeys() throws {
        let file = try TemporaryFile("")
        func line(_ number: UInt8) -> String { Data(repeating: number, count: 80).base64EncodedString() }
        func write(_ lines: [String]) throws {
            try Data(lines.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file.path))
        }
        for wrong in [
            [], [line(1), line(2)], [line(1), line(2), line(2)], [line(1), line(2), "x" + line(3)],
            [line(1), line(2), String(line(3).dropLast(4))],
        ] {
            try write(wrong)
            #expect(throws: TLSError.self) { try TLSTicketKeyFile(path: file.path) }
        }
        try write([line(1), line(2), line(3), ""])
        let keys = try TLSTicketKeyFile(path: file.path)
        #expect(keys.keys.current.name == [UInt8](repeating: 2, count: 16))
        #expect(keys.keys.decryptionOnly.map { $0.name[0] } == [1, 3] && keys.failure == nil)
        try write([line(2), line(3), line(4)])
        keys.reload()
        #expect(keys.keys.current.name[0] == 3 && keys.failure == nil)
        // An invalid file leaves the keys unchanged and causes an error.
        try write([line(3), line(4)])
        keys.reload()
        #expect(keys.keys.current.name[0] == 3 && keys.failure?.message.contains("contains 2 lines instead of three") == true)
        try write([line(3), line(4), line(5)])
        keys.reload()
        #expect(keys.keys.current.name[0] == 4 && keys.failure == nil)
        #expect(throws: TLSError.self) { try TLSTicketKeyFile(path: "/nonexistent") }
        #expect(throws: TLSError.self) { try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 48)) }
    }

    @Test func dataReachesOurClientBehindEightTickets() throws {
        var settings = fixture
        settings.server.values.tickets = .issued(8)
        let pair = try settings.pair(chunk: 7)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(try pair.exchange([1, 2, 3], from: .client) == [1, 2, 3])
        #expect(try pair.exchange([4, 5, 6], from: .server) == [4, 5, 6])
    }
}

/// Ages of tickets, with a test clock.
@Suite struct TicketAgeTests {
    private let clock = Locked(0)
    private let settings: TLSServerSettings
    private let context: TLSContext

    init() throws {
        var settings = try Fixture().server
        settings.values.tickets = .issued(1)
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

    /// A server that first writes after the session has expired does not send a ticket, and continues.
    @Test func aSessionMayEndBeforeTheFirstData() throws {
        let first = try connect(at: 100)
        clock.withLock { $0 = 3699 }
        let (server, peer) = (try TLSEngine(context: context, settings: settings), try RawPeer(.tls13))
        try peer.resume(first.session())
        peer.shakeHands(with: server)
        #expect(server.session?.isResumed == true)
        for time in [3700, 9000] {
            clock.withLock { $0 = time }
            #expect(server.write("hello").accepted == 5)
            peer.carryFrom(server)
            #expect(peer.read() == "hello")
        }
        #expect(try !connect(at: 9000, resuming: peer.session()).isResumed)
    }
}

/// Times are relative to the creation of the first key, at 100.
@Suite final class TicketKeyRingTests {
    private var ring = TicketKeyRing()

    private func sealing(at time: Int) throws -> TLSTicketKey {
        let key = ring.keyForSealing(at: 100 + time)
        return try #require(key)
    }

    private func opens(_ key: TLSTicketKey, at time: Int) -> Bool {
        key.name.withUnsafeBytes { ring.key(named: $0, at: 100 + time)?.key === key }
    }

    @Test(arguments: [nil, 3600, 7199])
    func aKeyEncryptsForAnHourAndDecryptsForTwo(successor: Int?) throws {
        let key = try sealing(at: 0)
        #expect(try sealing(at: 3599) === key)
        if let successor { #expect(try sealing(at: successor) !== key) }
        #expect(opens(key, at: 7199))
        #expect(!opens(key, at: 7200))
        // The key is removed, not only rejected.
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

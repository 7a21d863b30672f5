import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestSupport
import Testing

/// Our clients and a bare server with OpenSSL's own tickets.
@Suite struct ClientResumptionTests {
    private var fixture: Fixture
    private let server: RawServer
    private let store = TLSInMemorySessionStore()

    private static let endpoint = "mail.example.org 993"

    private let version: TLSProtocolVersion

    init() throws {
        try self.init(.tls13)
    }

    private init(_ version: TLSProtocolVersion) throws {
        self.version = version
        fixture = try Fixture(version)
        fixture.client.resumption = .store(store)
        server = try RawServer(
            version, pem: fixture.authority.issue(.server(names: [Fixture.host, "other.example.org"]), signedBy: .root).pem)
    }

    /// The result of one connection.
    private struct Conversation {
        let session: TLSSession?
        let questions: [PeerTrust]
        let error: TLSError?
    }

    private func converse(
        _ settings: TLSClientSettings? = nil, endpoint: String? = endpoint, decision: Bool = true,
        before end: (TLSEngine) -> Void = { _ in }
    ) throws -> Conversation {
        let settings = settings ?? fixture.client
        let client = try TLSEngine(context: TLSContext.context(for: settings), settings: settings, endpoint: endpoint)
        let peer = try RawPeer(serving: server.connection)
        var questions: [PeerTrust] = []
        var error: TLSError?
        for _ in 0..<10 {
            switch client.handshake() {
            case .awaitingTrust(let trust):
                questions.append(trust)
                client.decideTrust(decision)
                if case .failed(let failure) = client.handshake() { error = failure }
            case .failed(let failure): error = failure
            case .complete, .incomplete, .awaitingSettings, .awaitingWork: break
            }
            peer.carryFrom(client)
            SSL_do_handshake(peer.ssl)
            peer.carryTo(client)
        }
        if error == nil {
            peer.send("hello")
            peer.carryTo(client)
            #expect(client.readAll().text == "hello")
        }
        end(client)
        // Otherwise OpenSSL's server would discard the session.
        SSL_set_shutdown(peer.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
        return Conversation(session: client.session, questions: questions, error: error)
    }

    // MARK: - Resuming

    @Test(arguments: versions) func aClientThatComesBackResumes(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let first = try #require(try tests.converse().session)
        #expect(!first.isResumed && first.resumable != nil && tests.store.count > 0)
        for _ in 0..<3 {
            let again = try #require(try tests.converse().session)
            #expect(again.isResumed && again.peerCertificates == first.peerCertificates)
            #expect(again.protocolVersion == version)
        }
    }

    @Test func sessionsOfTLS12WithoutTicketsAreResumedToo() throws {
        let tests = try Self(.tls12)
        tests.server.issueNoTickets()
        _ = try tests.converse()
        for _ in 0..<3 { #expect(try tests.converse().session?.isResumed == true) }
        #expect(tests.store.count == 1)
    }

    @Test func aTicketOfTLS13IsUsedOnce() throws {
        _ = try converse()
        let count = store.count
        #expect(count == 2)
        var settings = fixture.client
        // Nothing new is stored meanwhile.
        let key = try #require(keys(of: settings).first)
        settings.resumption = .store(store)
        let first = try #require(store.take(for: key))
        let second = try #require(store.take(for: key))
        #expect(first.bytes != second.bytes && store.take(for: key) == nil)
        #expect(try converse().session?.isResumed == false)
    }

    /// The keys under which a connection with these settings stores.
    private func keys(of settings: TLSClientSettings) throws -> [TLSSessionStoreKey] {
        let recorder = KeyRecorder()
        var settings = settings
        settings.resumption = .store(recorder)
        _ = try converse(settings)
        return recorder.keys
    }

    private final class KeyRecorder: TLSSessionStore {
        private let stored = Locked<[TLSSessionStoreKey]>([])

        var keys: [TLSSessionStoreKey] { stored.withLock { $0 } }

        func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
            stored.withLock { $0.append(key) }
        }

        func take(for key: TLSSessionStoreKey) -> TLSResumableSession? { nil }
    }

    // MARK: - Sessions that are not resumed

    @Test(arguments: versions) func nothingCrossesSettings(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        var others: [(String, TLSClientSettings)] = []
        func add(_ what: String, _ change: (inout TLSClientSettings) throws -> Void) rethrows {
            var settings = tests.fixture.client
            try change(&settings)
            others.append((what, settings))
        }
        var named = try tests.fixture.authority.clientSettings(serverName: "other.example.org")
        (named.minimumVersion, named.maximumVersion) = (version, version)
        named.resumption = tests.fixture.client.resumption
        others.append(("server name", named))
        add("host name") { $0.verifiesHostName = false }
        add("evaluation") { $0.trustEvaluation = .delegate }
        add("manual") { $0.trustEvaluation = .manual }
        add("protocols") { $0.applicationProtocols = ["h2"] }
        add("chain length") { $0.maximumCertificateChainLength = 9 }
        add("chain bytes") { $0.maximumCertificateChainBytes = 60_000 }
        add("partial chains") { $0.values.rules.acceptsPartialChains = true }
        add("time") { $0.values.rules.verificationTime = Date() }
        add("strict") { $0.values.rules.isStrict = true }
        try add("pins") { $0.values.rules.pins = [try TLSCertificate(pem: tests.fixture.authority.rootPEM).publicKeySHA256] }
        add("stapling") { $0.values.ocspStapling = .requested }
        add("report") { $0.values.rules.onlyReportsPins = true }
        try add("identity") { $0.identity = try tests.fixture.authority.identity(.client(commonName: "alice")) }
        try add("roots") {
            guard case .certificates(let roots) = try tests.fixture.authority.roots,
                case .certificates(let more) = try Fixture.stranger.roots
            else { throw TestFailure(what: "roots") }
            $0.trustRoots = .certificates(roots + more)
        }
        for (what, settings) in others {
            _ = try tests.converse()
            #expect(try tests.converse(settings).session?.isResumed == false, "\(what)")
            tests.store.removeAll()
        }
        _ = try tests.converse()
        #expect(try tests.converse(endpoint: "mail.example.org 143").session?.isResumed == false)
        #expect(try tests.converse(endpoint: nil).session?.isResumed == false)
        #expect(try tests.converse().session?.isResumed == true)
    }

    @Test func whoWantsNoneResumesNone() throws {
        _ = try converse()
        var settings = fixture.client
        settings.resumption = .none
        let session = try #require(try converse(settings).session)
        #expect(!session.isResumed && session.resumable == nil)
    }

    /// An untrusted name must not reach a session of the trusted one.
    @Test(arguments: versions) func aWrongNameIsRefusedThoughASessionIsThere(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        _ = try tests.converse()
        var settings = try tests.fixture.authority.clientSettings(serverName: "wrong.example.org")
        (settings.minimumVersion, settings.maximumVersion) = (version, version)
        settings.resumption = tests.fixture.client.resumption
        #expect(try tests.converse(settings).error?.code == .hostNameMismatch)
    }

    // MARK: - The decision

    @Test(arguments: versions, [TLSTrustEvaluation.delegate, .manual])
    func theDecisionIsAskedForAgain(_ version: TLSProtocolVersion, _ evaluation: TLSTrustEvaluation) throws {
        var tests = try Self(version)
        tests.fixture.client.trustEvaluation = evaluation
        let first = try tests.converse()
        #expect(first.questions.count == 1)
        let second = try tests.converse()
        #expect(second.session?.isResumed == true && second.questions == first.questions)
        // A rejection after OpenSSL's handshake has completed.
        let third = try tests.converse(decision: false)
        #expect(third.error?.code == .trustRejected && third.session == nil && third.questions == first.questions)
    }

    @Test(arguments: versions) func nothingIsStoredOfAServerThatWasRefused(_ version: TLSProtocolVersion) throws {
        var tests = try Self(version)
        tests.fixture.client.trustEvaluation = .delegate
        #expect(try tests.converse(decision: false).error?.code == .trustRejected)
        #expect(tests.store.count == 0)
        tests.fixture.client.trustEvaluation = .builtIn
        tests.fixture.client.trustRoots = try Fixture.stranger.roots
        #expect(try tests.converse().error?.code == .unknownIssuer)
        #expect(tests.store.count == 0)
    }

    /// With `.manual`, OpenSSL's findings are stored with the session.
    @Test(arguments: versions) func theVerdictGoesWithTheSession(_ version: TLSProtocolVersion) throws {
        var tests = try Self(version)
        tests.fixture.client.trustEvaluation = .manual
        tests.fixture.client.trustRoots = try Fixture.stranger.roots
        let first = try tests.converse()
        let second = try tests.converse()
        #expect(second.session?.isResumed == true && second.questions == first.questions)
        #expect(second.questions.first?.verdict != .trusted)
    }

    // MARK: - The session of one connection

    @Test(arguments: versions) func theSessionOfAConnectionIsResumedElsewhere(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let control = try #require(try tests.converse().session?.resumable)
        #expect(control.protocolVersion == version && control.isUsable && control.end > Date())
        var settings = tests.fixture.client
        settings.resumption = .session(control)
        for port in 0..<5 {
            #expect(try tests.converse(settings, endpoint: "mail.example.org \(port)").session?.isResumed == true)
        }
        settings = try tests.fixture.authority.clientSettings(serverName: "other.example.org")
        settings.resumption = .session(control)
        #expect(throws: TLSError.self) { try tests.converse(settings) }
    }

    @Test(arguments: versions) func aSessionCanBeRestoredFromItsBytes(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let first = try #require(try tests.converse().session)
        let session = try #require(first.resumable)
        let copy = try TLSResumableSession(bytes: session.bytes)
        #expect(copy.bytes == session.bytes && copy.end.timeIntervalSince(session.end) <= 1)
        var settings = tests.fixture.client
        settings.resumption = .session(copy)
        let again = try #require(try tests.converse(settings).session)
        #expect(again.isResumed && again.peerCertificates == first.peerCertificates && !first.peerCertificates.isEmpty)
    }

    @Test func bytesThatAreNoSessionAreRefused() throws {
        let bytes = try #require(try converse().session?.resumable).bytes
        for count in 0..<bytes.count {
            #expect(throws: TLSError.self) { try TLSResumableSession(bytes: Array(bytes.prefix(count))) }
        }
        #expect(throws: TLSError.self) { try TLSResumableSession(bytes: bytes + [0]) }
        // Each byte is changed in the same way in each run, and some at random.
        let seed = Seeds.first("SESSION_SEED")
        var generator = SeededGenerator(seed: seed)
        let places = Array(bytes.indices) + (0..<1000).map { _ in Int.random(in: bytes.indices, using: &generator) }
        for (number, place) in places.enumerated() {
            var changed = bytes
            changed[place] = number < bytes.count ? ~changed[place] : .random(in: 0...255, using: &generator)
            guard let session = try? TLSResumableSession(bytes: changed) else { continue }
            // Changed numbers may need more bytes, and OpenSSL 3.5 writes more of them.
            #expect(session.bytes.count <= bytes.count + 16, "SESSION_SEED=\(seed), byte \(place)")
        }
    }

    /// The date of the verdict follows the format, the scope, the verdict and the number of faults.
    private func bytes(of date: Int64) throws -> [UInt8] {
        var bytes = try #require(try converse().session?.resumable).bytes
        let place = 8 + "AsyncSockets session 2".utf8.count + 8 + 32 + 8 + 8
        bytes.replaceSubrange(place..<place + 8, with: withUnsafeBytes(of: date.bigEndian, Array.init))
        return bytes
    }

    /// A session that is stored and restored keeps its age.
    @Test func bytesKeepTheDateOfTheVerdict() throws {
        let bytes = try bytes(of: Int64(Date().timeIntervalSince1970) - 3600)
        #expect(try TLSResumableSession(bytes: bytes).bytes == bytes)
    }

    @Test(arguments: [Int64.max, .min, 1 << 62, 200_000_000_000])
    func aDateThatIsNoneIsRefused(_ date: Int64) throws {
        let bytes = try bytes(of: date)
        let error = #expect(throws: TLSError.self) { try TLSResumableSession(bytes: bytes) }
        #expect(error?.code == .invalidSession)
    }

    /// In TLS 1.3, a ticket with a lifetime of zero must be discarded immediately (RFC 8446, 4.6.1).
    @Test(arguments: versions) func aTicketOfTLS13WithoutALifetimeIsOver(_ version: TLSProtocolVersion) throws {
        let session = try #require(try Self(version).converse().session?.resumable)
        #expect(session.isUsable)
        var bytes = session.bytes
        // OpenSSL's encoding of the session is the last field. In it, the lifetime of 7,200 seconds is [9].
        func number(at place: Int) -> Int { bytes[place..<place + 8].reduce(0) { $0 << 8 | Int($1) } }
        let start = try #require((8..<bytes.count).first { number(at: $0 - 8) == bytes.count - $0 && bytes[$0] == 0x30 })
        try #require(bytes[start + 1] == 0x82)
        let lifetime: [UInt8] = [0xA9, 4, 2, 2, 0x1C, 0x20]
        let place = try #require((start..<bytes.count - 6).first { bytes[$0...].starts(with: lifetime) })
        let count = bytes.count - start - lifetime.count
        bytes.replaceSubrange(
            start - 2..<start + 4,
            with: [UInt8(count >> 8), UInt8(count & 255), 0x30, 0x82, UInt8((count - 4) >> 8), UInt8((count - 4) & 255)])
        bytes.removeSubrange(place..<place + lifetime.count)
        #expect(try TLSResumableSession(bytes: bytes).isUsable == (version == .tls12))
    }

    /// In TLS 1.2, the key log of a resumed connection contains the secret of all connections that used the
    /// session.
    @Test(arguments: versions) func aLogDoesNotHaveTheSecretsOfOthers(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let log = try TemporaryFile("")
        _ = try tests.converse()
        var logged = tests.fixture.client
        logged.keyLogFile = log.path
        #expect(try tests.converse(logged).session?.isResumed == false)
        #expect(try tests.converse(logged).session?.isResumed == true)
    }

    // MARK: - Limits

    @Test func theMemoryKeepsItsLimits() throws {
        let session = try #require(try converse().session?.resumable)
        let memory = TLSInMemorySessionStore(maximumSessions: 10)
        let all = try (0..<20).map { try #require(try keys(of: fixture.client, at: "host \($0)").first) }
        for key in all { memory.store(session, for: key) }
        #expect(memory.count == 10 && memory.take(for: all[9]) == nil && memory.take(for: all[10]) != nil)
        for _ in 0..<20 { memory.store(session, for: all[0]) }
        #expect(memory.count <= 10)
        var taken = 0
        while memory.take(for: all[0]) != nil { taken += 1 }
        #expect(taken == 6)
        // The oldest one is removed, and the latest one is used first.
        let sessions = try (0..<8).map { _ in try #require(try converse().session?.resumable) }
        for session in sessions { memory.store(session, for: all[1]) }
        for session in sessions.dropFirst(2).reversed() { #expect(memory.take(for: all[1]) === session) }
        #expect(memory.take(for: all[1]) == nil)
        memory.removeAll()
        #expect(memory.count == 0)
    }

    private func keys(of settings: TLSClientSettings, at endpoint: String) throws -> [TLSSessionStoreKey] {
        let recorder = KeyRecorder()
        var settings = settings
        settings.resumption = .store(recorder)
        _ = try converse(settings, endpoint: endpoint)
        return recorder.keys
    }

    @Test(arguments: versions) func aFatalAlertEndsTheSession(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        var held: TLSResumableSession?
        _ = try tests.converse(before: { client in
            held = client.session?.resumable
            // A forged record.
            client.receive([23, 3, 3, 0, 20] + [UInt8](repeating: 7, count: 20))
            _ = client.readAll()
        })
        #expect(try #require(held).isUsable == false)
    }
}

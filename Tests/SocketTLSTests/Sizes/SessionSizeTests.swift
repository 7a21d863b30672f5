import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTestSupport
import Testing

@testable import SocketTLS

/// The memory of the stores of sessions, keys and contexts after entries were removed or have expired.
@Suite struct SessionSizeTests {
    private static let count = 10_000
    private let fixture: Fixture
    /// Knows the cipher suites.
    private let peer: RawPeer

    init() throws {
        fixture = try .resuming()
        peer = try RawPeer(.tls12)
    }

    // MARK: - Sessions of clients

    /// Returns a session, and a scope for keys.
    private func session() throws -> (TLSResumableSession, ResumptionScope) {
        var settings = fixture.client
        settings.resumption = .store(TLSInMemorySessionStore())
        let pair = try EnginePair(settings, fixture.server)
        pair.shakeHands()
        // The ticket arrives with the first data of the server.
        _ = try pair.exchange([1], from: .server)
        let session = try #require(pair.client.session?.resumable)
        return (session, session.scope)
    }

    @Test func aStoreKeepsNothingOfSessionsThatWereTaken() throws {
        let (session, scope) = try session()
        let store = TLSInMemorySessionStore()
        for number in 0..<Self.count {
            let key = TLSSessionStoreKey(scope, endpoint: "host \(number)")
            for _ in 0..<number % 3 + 1 { store.store(session, for: key) }
            for _ in 0..<number % 3 + 1 { #expect(store.take(for: key) === session) }
            #expect(store.take(for: key) == nil)
        }
        let contents = Contents(of: store)
        #expect(store.count == 0 && contents["contents.sessions"] == 0 && contents["contents.lastUses"] == 0)
        #expect(contents["contents.uses"] <= 20)
    }

    @Test(arguments: [1, 10]) func aStoreKeepsNoMoreSessionsThanItsLimit(_ limit: Int) throws {
        let (session, scope) = try session()
        let store = TLSInMemorySessionStore(maximumSessions: limit)
        for number in 0..<Self.count {
            store.store(session, for: TLSSessionStoreKey(scope, endpoint: "host \(number)"))
            // One key is used again and again.
            if number % 10 == 0 { store.store(session, for: TLSSessionStoreKey(scope, endpoint: "host")) }
        }
        let contents = Contents(of: store)
        #expect(store.count == limit && contents["contents.sessions[]"] == limit)
        #expect(contents["contents.sessions"] <= limit && contents["contents.lastUses"] == contents["contents.sessions"])
        #expect(contents["contents.uses"] <= 2 * limit + 16)
        store.removeAll()
        #expect(Contents(of: store) == Contents(of: TLSInMemorySessionStore()))
    }

    // MARK: - Sessions of servers

    /// A session object with its own identifier.
    private func makeSession(_ number: Int) throws -> OpaquePointer {
        let cipher = [0xC0, 0x2F] as [UInt8]
        let session = try #require(SSL_SESSION_new())
        let identifier = withUnsafeBytes(of: number.bigEndian) { [UInt8](repeating: 1, count: 24) + Array($0) }
        #expect(SSL_SESSION_set1_id(session, identifier, UInt32(identifier.count)) == 1)
        let secret = [UInt8](repeating: 2, count: 48)
        #expect(SSL_SESSION_set1_master_key(session, secret, secret.count) == 1)
        #expect(SSL_SESSION_set_protocol_version(session, 0x0303) == 1)
        #expect(SSL_SESSION_set_cipher(session, SSL_CIPHER_find(peer.ssl, cipher)) == 1)
        return session
    }

    private enum End: CaseIterable {
        case expired, failed, foundExpired
    }

    @Test func endedSessionsOfServersAreNotKept() throws {
        for end in End.allCases {
            let sessions = IdentifiedSessions(limit: 100)
            for number in 0..<2_000 {
                let session = try makeSession(number)
                defer { SSL_SESSION_free(session) }
                sessions.store(session, until: 10 * number + 5, at: 10 * number)
                #expect(sessions.count == 1 && sessions.byteCount > 0)
                if end == .failed { sessions.remove(session) }
                var count: UInt32 = 0
                let bytes = SSL_SESSION_get_id(session, &count)
                let identifier = Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
                if end == .foundExpired { #expect(sessions.session(identifier, at: 10 * number + 5) == nil) }
            }
            if end == .expired { #expect(sessions.session([], at: .max) == nil) }
            let contents = Contents(of: sessions)
            #expect(sessions.count == 0 && sessions.byteCount == 0, "\(end)")
            #expect(contents["state.entries"] == 0 && contents["state.identifiers"] <= 1, "\(end): \(contents)")
        }
    }

    @Test func aServerKeepsNoMoreSessionsThanItsLimits() throws {
        let size = Int(i2d_SSL_SESSION(try makeSession(0), nil))
        for (sessions, limit) in [
            (IdentifiedSessions(limit: 50), 50), (IdentifiedSessions(byteLimit: 50 * (size + 8)), 60),
        ] {
            for number in 0..<2_000 {
                let session = try makeSession(number)
                sessions.store(session, until: .max, at: 0)
                // Sessions of failed connections are removed from the middle.
                if number % 3 == 0 { sessions.remove(session) }
                SSL_SESSION_free(session)
            }
            let contents = Contents(of: sessions)
            #expect(sessions.count > limit / 3 && sessions.count <= limit && contents["state.entries"] == sessions.count)
            #expect(contents["state.identifiers"] <= 4 * limit, "\(contents)")
        }
    }

    // MARK: - Keys and records

    @Test func aTicketKeyIsReleasedAfterItsTime() {
        var ring = TicketKeyRing()
        var keys: [() -> TLSTicketKey?] = []
        for hour in 0..<Self.count {
            weak let key = ring.keyForSealing(at: hour * TicketKeyRing.period)
            keys.append { key }
        }
        #expect(keys.count { $0() != nil } == 2)
        #expect(Contents(of: ring)["current"] == 1 && Contents(of: ring)["previous"] == 1)
        #expect(ring.key(named: UnsafeRawBufferPointer(start: nil, count: 0), at: Self.count * TicketKeyRing.period * 2) == nil)
        #expect(keys.count { $0() != nil } == 0 && Contents(of: ring) == Contents(of: TicketKeyRing()))
    }

    @Test func aRecordOfEarlyDataForgetsAfterTwoPeriods() {
        var record = EarlyDataRecord(limit: 1000)
        for number in 0..<Self.count {
            let now = number / 40
            let isAdmitted = record.admit(EarlyDataRecord.Ticket(high: 1, low: UInt64(number)), at: now)
            #expect(isAdmitted)
        }
        let contents = Contents(of: record)
        #expect(contents["current"] <= 1000 && contents["previous"] <= 1000 && contents["current"] > 0)
        // At most one ticket of a later time is left.
        let isAdmitted = record.admit(EarlyDataRecord.Ticket(high: 2, low: 0), at: 1_000_000)
        #expect(isAdmitted && Contents(of: record)["current"] == 1 && Contents(of: record)["previous"] == 0)
        // Refused tickets take no memory.
        for number in 0..<5_000 { _ = record.admit(EarlyDataRecord.Ticket(high: 3, low: UInt64(number)), at: 1_000_001) }
        #expect(Contents(of: record)["current"] == 1000)
    }

    @Test func aCacheReleasesContextsBeyondItsLimit() throws {
        let cache = ContextCache(limit: 4)
        var contexts: [() -> TLSContext?] = []
        for number in 0..<200 {
            var server = fixture.server
            server.applicationProtocols = ["protocol-\(number)"]
            server.sessionTickets = number % 2 == 0 ? .issued(1) : .none
            weak let context = try TLSContext.context(for: server, in: cache)
            contexts.append { context }
        }
        #expect(Contents(of: cache)["contents.entries"] == 8)
        #expect(contexts.count { $0() != nil } == 8)
    }

    // MARK: - DTLS

    @Test func fragmentsOfManyMessagesAreBounded() throws {
        let settings = fixture.server.values
        var fragments = HandshakeFragments(with: settings)
        var admitted = 0
        for number in 0..<Self.count {
            // Type, length, message number, offset, length of the fragment, and a byte.
            let header: [UInt8] = [1, 0, 0, 100, UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF), 0, 0, 0, 0, 0, 1, 7]
            header.withUnsafeBytes { if fragments.admits($0[...]) { admitted += 1 } }
        }
        #expect(admitted == 32 && Contents(of: fragments)["lengths"] == 32)
    }

    @Test func aMessageKeepsOnlyDatagramsWithNewBytes() {
        var fragments = MessageFragments(of: 16, limit: 1024)
        for number in 0..<Self.count {
            // A record with the first byte of the message, again and again.
            let record: [UInt8] = [
                22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF), 0, 13, 16, 0, 0, 40, 0, 1, 0,
                0,
                0, 0, 0, 1, 7,
            ]
            record.withUnsafeBytes { _ = fragments.add($0) }
        }
        let contents = Contents(of: fragments)
        #expect(contents["datagrams"] == 1 && contents["known"] == 1 && contents["bytes"] == 40)
    }

    /// A server looks up the key of a client, and the lookup may fail. Afterwards no datagram is kept.
    @Test(arguments: [false, true]) func aServerKeepsNoDatagramsOfALookup(fails: Bool) async throws {
        let key = try PreSharedKeyFixture.key()
        let fixture = PreSharedKeyFixture(.tls12, key, TLSPreSharedKeys(lookUp: { _ in key }))
        func engine(_ settings: TLSSettingValues) throws -> DTLSEngine {
            try DTLSEngine(context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: 1400)
        }
        let client = DatagramPair.End(try engine(fixture.client.values))
        let server = DatagramPair.End(try engine(fixture.server.values))
        var lookupCount = 0
        for _ in 0..<10 where !(client.isComplete && server.isComplete) {
            client.shakeHands()
            for datagram in client.takeOutput() { server.receive(datagram) }
            server.shakeHands()
            if case .awaitingSettings(let question) = server.answer, case .key(let answer) = await question.answer() {
                lookupCount += 1
                #expect(Contents(of: try #require(server.engine.keyLookup))["held"] > 0)
                server.engine.choose(.key(fails ? .failed("no database") : answer))
                server.shakeHands()
            }
            for datagram in server.takeOutput() { client.receive(datagram) }
        }
        #expect(lookupCount == 1 && server.isComplete == !fails && (server.error != nil) == fails)
        #expect(server.engine.keyLookup.map { Contents(of: $0)["held"] + Contents(of: $0)["fragments.datagrams"] } ?? 0 == 0)
        #expect(fails || server.engine.records.fragments == nil)
    }
}

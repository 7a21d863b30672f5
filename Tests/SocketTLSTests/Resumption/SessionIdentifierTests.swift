import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import Testing

@testable import SocketTLS

/// TLS 1.2 clients that resume sessions by session ID.
@Suite struct SessionIdentifierTests {
    private let fixture: Fixture

    init() throws {
        fixture = try .resuming()
    }

    private func server(_ settings: TLSServerSettings? = nil) throws -> TLSEngine { try fixture.engine(settings) }

    /// Returns a client that does not send the ticket extension, as some do (RFC 5246, 7.3).
    private func clientOfIdentifiers(_ server: TLSEngine, resuming session: [UInt8]? = nil, named name: String? = nil) throws
        -> RawPeer
    {
        let peer = try RawPeer(.tls12)
        SSL_set_options(peer.ssl, COpenSSL_noTicketOption())
        if let name { _ = COpenSSL_setServerNameIndication(peer.ssl, name) }
        if let session { try peer.resume(session) }
        peer.countTickets()
        peer.shakeHands(with: server)
        #expect(SSL_is_init_finished(peer.ssl) == 1 && peer.tickets == 0)
        return peer
    }

    @Test func aSessionIsResumedByItsIdentifier() throws {
        let first = try clientOfIdentifiers(server())
        let session = try first.session()
        for _ in 0..<10 {
            let again = try server()
            try clientOfIdentifiers(again, resuming: session).expectResumption(true, by: again)
        }
        // Without tickets there are no sessions, and other settings have others.
        for change in [{ $0.sessionTickets = .none }, { $0.applicationProtocols = ["h2"] }] as [(inout TLSServerSettings) -> Void]
        {
            var settings = fixture.server
            change(&settings)
            let other = try server(settings)
            try clientOfIdentifiers(other, resuming: session).expectResumption(false, by: other)
        }
    }

    @Test func anIdentifierEndsAsTicketsDo() throws {
        let now = Locked(1000)
        let context = try TLSContext(for: fixture.server, ticketClock: { now.withLock { $0 } })
        func server() throws -> TLSEngine { try TLSEngine(context: context, settings: fixture.server) }
        let session = try clientOfIdentifiers(server()).session()
        for (time, isResumed) in [(999, false), (-5000, false), (1000, true), (4599, true), (4600, false), (4599, false)] {
            now.withLock { $0 = time }
            let again = try server()
            try clientOfIdentifiers(again, resuming: session).expectResumption(isResumed, by: again)
        }
    }

    /// RFC 5246, 7.2.2.
    @Test func aSessionOfAConnectionThatFailsIsForgotten() throws {
        func session(ofAConnectionThatFails fails: Bool) throws -> [UInt8] {
            let first = try server()
            let peer = try clientOfIdentifiers(first)
            if fails {
                first.receive([23, 3, 3, 0, 20] + [UInt8](repeating: 0, count: 20))
                #expect(first.readAll().end.error != nil)
            }
            return try peer.session()
        }
        for fails in [false, true] {
            let session = try session(ofAConnectionThatFails: fails)
            let again = try server()
            try clientOfIdentifiers(again, resuming: session).expectResumption(!fails, by: again)
        }
    }

    /// Such a client receives a ticket, and the session under its ID is unchanged. Many in parallel, because
    /// OpenSSL writes to a connection's session without a lock.
    @Test func clientsOfOneIdentifierMayAskForTickets() throws {
        let settings = fixture.server
        let session = try clientOfIdentifiers(server()).session()
        let outcomes = Locked([Bool]())
        DispatchQueue.concurrentPerform(iterations: 64) { _ in
            for _ in 0..<4 {
                let peer = try? RawPeer.client(.tls12, of: fixture.engine(settings), resuming: session)
                outcomes.withLock { $0.append(peer?.isResumed == true && peer?.tickets == 1) }
            }
        }
        #expect(outcomes.withLock { $0 } == Array(repeating: true, count: 256))
    }

    /// Neither with a new ticket nor when they resume with it, because the ticket contains the whole session.
    @Test func clientsWithTicketsTakeNoRoom() throws {
        let context = try TLSContext(for: fixture.server, ticketClock: nil)
        func server() throws -> TLSEngine { try TLSEngine(context: context, settings: fixture.server) }
        let session = try RawPeer.client(.tls12, of: server()).session()
        for _ in 0..<2 { #expect(try RawPeer.client(.tls12, of: server(), resuming: session).isResumed) }
        let identified = try #require(context.tickets).identified
        #expect(identified.count == 0)
        _ = try clientOfIdentifiers(server())
        #expect(identified.count == 1)
    }

    private func session(_ number: Int, length: Int = 0) throws -> OpaquePointer {
        let session = try #require(SSL_SESSION_new())
        try #require(SSL_SESSION_set_protocol_version(session, TLS1_2_VERSION) == 1)
        let peer = try RawPeer(.tls12)
        try withExtendedLifetime(peer) {
            let cipher = try #require(SSL_CIPHER_find(peer.ssl, [0xC0, 0x2F]))
            try #require(SSL_SESSION_set_cipher(session, cipher) == 1)
        }
        try #require(SSL_SESSION_set1_id(session, Self.identifier(number), 32) == 1)
        try #require(SSL_SESSION_set1_ticket_appdata(session, [UInt8](repeating: 0, count: length), length) == 1)
        return session
    }

    private static func identifier(_ number: Int) -> [UInt8] { [UInt8](repeating: UInt8(number), count: 32) }

    private func kept(_ sessions: IdentifiedSessions, at time: Int = 0) -> [Int] {
        (0..<100).filter { number in
            guard let session = sessions.session(Self.identifier(number), at: time) else { return false }
            SSL_SESSION_free(session)
            return true
        }
    }

    @Test func onlySoManyAreKept() throws {
        let sessions = IdentifiedSessions(limit: 3)
        for number in 0..<10 {
            let session = try session(number)
            defer { SSL_SESSION_free(session) }
            sessions.store(session, until: 1, at: 0)
            #expect(kept(sessions) == Array(max(0, number - 2)...number))
        }
    }

    @Test func onlySoManyBytesAreKept() throws {
        let sessions = IdentifiedSessions(byteLimit: 10_000)
        for (number, length) in [3000, 3000, 3000, 100, 9000, 12_000, 100].enumerated() {
            let session = try session(number, length: length)
            defer { SSL_SESSION_free(session) }
            sessions.store(session, until: 1, at: 0)
            #expect(sessions.byteCount <= 10_000)
        }
        #expect(kept(sessions) == [3, 4, 6])
    }

    @Test func sessionsThatHaveEndedAreNotKept() throws {
        let sessions = IdentifiedSessions()
        for (number, end) in [10, 30, 20, 40].enumerated() {
            let session = try session(number)
            defer { SSL_SESSION_free(session) }
            sessions.store(session, until: end, at: 0)
        }
        #expect(kept(sessions, at: 19) == [1, 2, 3] && sessions.count == 3)
        #expect(kept(sessions, at: 29) == [1, 3] && sessions.count == 2)
        let last = try session(9)
        defer { SSL_SESSION_free(last) }
        sessions.store(last, until: 50, at: 40)
        #expect(sessions.count == 1 && kept(sessions, at: 40) == [9])
    }
}

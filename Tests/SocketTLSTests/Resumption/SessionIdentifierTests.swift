import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Clients in TLS 1.2 that keep sessions by identifier.
@Suite struct SessionIdentifierTests {
    private let fixture: Fixture

    init() throws {
        fixture = try .resuming()
    }

    private func server(_ settings: TLSSettings? = nil) throws -> TLSEngine { try fixture.engine(settings) }

    /// A client that sends no ticket extension, as some do (RFC 5246, 7.3).
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
        for change in [{ $0.sessionTicketCount = 0 }, { $0.applicationProtocols = ["h2"] }] as [(inout TLSSettings) -> Void] {
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
        for (time, isResumed) in [(1000, true), (4599, true), (4600, false), (10_000, false), (999, false), (-5000, false)] {
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

    @Test func onlySoManyAreKept() throws {
        let sessions = IdentifiedSessions(limit: 3)
        var identifiers: [[UInt8]] = []
        for number in 0..<10 {
            let session = try #require(SSL_SESSION_new())
            identifiers.append([UInt8](repeating: UInt8(number + 1), count: 32))
            #expect(SSL_SESSION_set1_id(session, identifiers[number], 32) == 1)
            sessions.store(session)
            #expect(sessions.count == min(number + 1, 3))
            for (index, identifier) in identifiers.enumerated() {
                #expect(sessions.contains(identifier) == (index > number - 3))
            }
        }
    }
}

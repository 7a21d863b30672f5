import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Dialogues of clients with TLSA records in their settings.
@Suite(.timeLimit(.patient), .ownThreads) struct RecordDialogueTests {
    private static func client(_ dane: TLSDANE) throws -> TLSClientSettings {
        var client = try TestCertificates.client()
        client.proof = .dane(dane)
        return client
    }

    private static var usable: TLSARecord {
        get throws { try TLSARecord(for: TLSCertificate(pem: TestCertificates.stranger.rootPEM)) }
    }

    /// Removes the offer from a server's EHLO reply, and returns the client's error.
    private func refusal(_ style: Style, _ dane: TLSDANE, reply: String = "250-m\r\n250 AUTH PLAIN\r\n") async throws
        -> StartTLSError
    {
        let (attacker, victim) = try StyledSocket.attacked(style)
        let settings = try Self.client(dane)
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: .smtp(name: "c"), settings) }
        try attacker.send("220 m\r\n")
        _ = try attacker.receive(through: "EHLO c\r\n")
        try attacker.send(reply)
        let error = try #require(try await failing)
        #expect(error.code == .startTLSFailed && error.fault == .peer)
        #expect(try attacker.receiveAll() == "")
        #expect(await victim.isOver)
        return try #require(error.startTLS)
    }

    @Test(arguments: Style.allCases, [TLSDANE.Policy.required, .certificates, .opportunistic])
    func withRecordsAMissingOfferIsAnAttack(_ style: Style, _ policy: TLSDANE.Policy) async throws {
        let record = try Self.usable
        for dane in [TLSDANE([record], policy: policy), TLSDANE(policy: policy) { _ in .init([record]) }] {
            let error = try await refusal(style, dane)
            #expect(error.code == .offerRemoved && !error.allowsPlaintext)
            #expect(error.message.contains("has TLSA records, so it supports TLS") && error.line == "250 AUTH PLAIN")
        }
    }

    /// RFC 7672, section 2.2: without authentication, but with TLS.
    @Test(arguments: Style.allCases) func unusableRecordsPromiseTLSToo(_ style: Style) async throws {
        let dane = TLSDANE([try TLSARecord("3 1 1 00")], policy: .opportunistic)
        let error = try await refusal(style, dane)
        #expect(error.code == .offerRemoved && !error.allowsPlaintext)
    }

    @Test(arguments: Style.allCases) func withoutRecordsThePolicySaysWhetherPlaintextIsAllowed(_ style: Style) async throws {
        for dane in [TLSDANE([], policy: .opportunistic), TLSDANE(policy: .opportunistic) { _ in .init([]) }] {
            let error = try await refusal(style, dane)
            #expect(error.code == .notOffered && error.allowsPlaintext)
        }
        let error = try await refusal(style, TLSDANE([], policy: .certificates))
        #expect(error.code == .notOffered && !error.allowsPlaintext)
    }

    /// A server without records for which records are required receives nothing.
    @Test(arguments: Style.allCases) func withoutRecordsNoDialogueBegins(_ style: Style) async throws {
        for dane in [TLSDANE([], policy: .required), TLSDANE(policy: .required) { _ in .init([]) }] {
            let (attacker, victim) = try StyledSocket.attacked(style)
            try attacker.send("220 m\r\n")
            let settings = try Self.client(dane)
            let error = try await StyledSocket.refusal { try await victim.startTLS(as: .smtp(name: "c"), settings) }
            #expect(error?.tls?.code == .noUsableTLSARecord)
            #expect(try attacker.receiveAll() == "")
            try await eventually("the connection is closed") { !victim.socket.isConnected }
        }
    }

    @Test(arguments: Style.allCases) func aMatchingRecordLeadsToTLS(_ style: Style) async throws {
        let server = try TestCertificates.server()
        let record = try TLSARecord(for: #require(server.identity?.certificateChain.first))
        for dane in [TLSDANE([record], policy: .required), TLSDANE(policy: .required) { _ in .init([record]) }] {
            let (client, other) = try await StyledSocket.pair(style, through: .listening())
            async let accepting: Void = other.acceptStartTLS(as: .smtp(greeting: "mail"), server)
            try await client.startTLS(as: .smtp(name: "c"), Self.client(dane))
            try await accepting
            #expect(client.socket.tlsSession?.dane == .matched(record))
        }
    }
}

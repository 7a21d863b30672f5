import AsyncSocketsTesting
import COpenSSL
import Testing

@testable import SocketTLS

/// Sessions, contexts, datagrams and raw public keys of clients with TLSA records.
@Suite struct DANESessionTests {
    @Test(arguments: versions) func sessionsAreResumedOnlyWithTheSameRecords(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        fixture.base.server.values.tickets = .issued(1)
        let (record, other) = (try fixture.record, try fixture.record(.daneTA, \.intermediate))
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.client.proof = .dane(TLSDANE([record, other], policy: .required))
        func session(_ settings: TLSClientSettings) throws -> TLSResumableSession {
            let pair = try EnginePair(settings, fixture.base.server)
            pair.shakeHands()
            #expect(try pair.exchange([1], from: .server) == [1])
            return try #require(pair.client.session?.resumable)
        }
        func result(_ proof: TLSServerProof, of session: TLSResumableSession) throws -> TLSDANEResult? {
            var settings = fixture.client
            settings.proof = proof
            settings.resumption = .session(session)
            let pair = try EnginePair(settings, fixture.base.server)
            pair.shakeHands()
            #expect(pair.client.session?.isResumed == true)
            return pair.client.session?.dane
        }
        let made = try session(fixture.client)
        // A resolver may change the order.
        #expect(try result(.dane(TLSDANE([other, record], policy: .required)), of: made) == .resumed)
        let changes: [TLSServerProof] = [
            .certificates, .dane(TLSDANE([record], policy: .required)),
            .dane(TLSDANE([record, other, try DANEFixture.otherRecord], policy: .required)),
            .dane(TLSDANE([record, other], policy: .opportunistic)), .dane(TLSDANE([], policy: .opportunistic)),
            .dane(TLSDANE([record, other], policy: .required, additionalNames: ["example.org"])),
        ]
        for proof in changes {
            let error = thrown { try result(proof, of: made) }
            #expect(error?.message.contains("different settings") == true)
        }
        // A session without records is not resumed with records, and an unauthenticated one stays that.
        var plain = fixture.client
        plain.proof = .certificates
        let unproven = try session(plain)
        #expect(thrown { try result(.dane(TLSDANE([record], policy: .required)), of: unproven) } != nil)
        plain.proof = .dane(TLSDANE([], policy: .opportunistic))
        let anyone = try session(plain)
        #expect(try result(plain.proof, of: anyone) == .unauthenticated)
        for proof in changes.prefix(4) { #expect(thrown { try result(proof, of: anyone) } != nil) }
    }

    @Test func connectionsWithDifferentRecordsShareAContext() throws {
        var fixture = try DANEFixture()
        let cache = ContextCache(limit: 4)
        fixture.expect([try fixture.record])
        let context = try TLSContext.context(for: fixture.client, in: cache)
        fixture.expect([try DANEFixture.otherRecord])
        #expect(try TLSContext.context(for: fixture.client, in: cache) === context)
        fixture.client.proof = .certificates
        #expect(try TLSContext.context(for: fixture.client, in: cache) !== context)
    }

    @Test func anEngineNeedsTheRecords() throws {
        var fixture = try DANEFixture()
        fixture.client.trustRoots = try fixture.base.authority.roots
        for policy in [TLSDANE.Policy.required, .certificates, .opportunistic] {
            fixture.client.proof = .dane(TLSDANE(policy: policy) { _ in .init([]) })
            let error = thrown { try fixture.base.pair() }
            #expect(error?.code == .invalidSettings && error?.message.contains("not been looked up") == true)
        }
    }

    /// A failure of an assumption must not turn into a connection without authentication.
    @Test func withoutItsAssumptionsNoServerIsAccepted() async throws {
        var fixture = try DANEFixture()
        fixture.expect([try fixture.record], .opportunistic)
        let pair = try fixture.base.pair()
        // OpenSSL accepts a chain without naming the record.
        let fault = pair.client.judge.faultOfMatch(nil, [fixture.leaf])
        guard case .untrusted(let reason, X509_V_ERR_DANE_NO_MATCH, 0) = fault else {
            Issue.record("\(String(describing: fault))")
            return
        }
        #expect(reason.contains("no TLSA record matches"))
        // No name is known.
        var settings = fixture.client.values
        let error = thrown { try settings.expectProof(on: pair.server.ssl, pair.server.judge) }
        #expect(error?.code == .invalidSettings)
        settings.proof = .dane(TLSDANE(policy: .opportunistic) { _ in .init([]) })
        settings.serverName = nil
        guard case .failure(let failure)? = await settings.lookUp?.answer() else {
            Issue.record("the settings are complete without a look-up")
            return
        }
        #expect(failure.code == .invalidSettings)
        // The records are not known yet.
        guard case .absent(isRequired: true) = settings.promiseOfTLS else {
            Issue.record("plaintext would be allowed before the look-up")
            return
        }
    }

    // MARK: - DTLS

    @Test func recordsApplyToDTLS() throws {
        var fixture = try DANEFixture(.tls12)
        fixture.base.useOnly(.dtls12)
        let record = try fixture.record
        fixture.expect([record])
        let pair = try DatagramPair(fixture.base)
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.client.engine.session?.dane == .matched(record))
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.expect([try DANEFixture.otherRecord])
        let refused = try DatagramPair(fixture.base)
        refused.shakeHands()
        #expect(refused.client.error?.code == .tlsaMismatch && refused.server.error?.alert == .badCertificate)
    }

    // MARK: - Raw public keys

    @Test(arguments: versions) func aRawPublicKeyMatchesARecord(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        let record = try fixture.record
        var dane = TLSDANE([record], policy: .required)
        dane.acceptsRawPublicKeys = true
        fixture.client.proof = .dane(dane)
        // Older versions of OpenSSL use the certificate.
        fixture.base.server.presentsRawPublicKey = TLSRawPublicKeys.isSupported
        let session = try #require(try fixture.shaken().client.session)
        #expect(session.dane == .matched(record) && session.resumable == nil)
        #expect((session.peerPublicKey == fixture.leaf.publicKey) == TLSRawPublicKeys.isSupported)
        #expect(session.peerCertificates.isEmpty == TLSRawPublicKeys.isSupported)
        // A key has no certificate.
        fixture.client.proof = .dane(dane, TLSCertificateRules(pins: [fixture.leaf.publicKeySHA256]))
        #expect(thrown { try fixture.base.pair() }?.message.contains("acceptsRawPublicKeys") == true)
        fixture.client.proof = .dane(dane, TLSCertificateRules(revocationLists: [.folder(path: "/nonexistent")]))
        #expect(thrown { try fixture.base.pair() }?.message.contains("acceptsRawPublicKeys") == true)
        fixture.client.proof = .dane(dane, ocspStapling: .requested)
        #expect(thrown { try fixture.base.pair() }?.message.contains("acceptsRawPublicKeys") == true)
        fixture.client.resumption = .store(TLSInMemorySessionStore())
        #expect(thrown { try fixture.base.pair() }?.message.contains("do not support resumption") == true)
        fixture.client.resumption = .inMemory
        // The key of another server, and no permission to send keys.
        dane = TLSDANE([try DANEFixture.otherRecord], policy: .opportunistic)
        dane.acceptsRawPublicKeys = true
        fixture.client.proof = .dane(dane)
        #expect(try fixture.shaken().clientError?.code == .tlsaMismatch)
        fixture.expect([record])
        #expect(try fixture.shaken().client.session?.peerPublicKey == nil)
    }
}

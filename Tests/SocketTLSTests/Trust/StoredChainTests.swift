import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

/// Chains that were not received in a handshake. A handshake with the same chain has the same result.
@Suite struct StoredChainTests {
    private func chain(_ issued: IssuedCertificate) throws -> [TLSCertificate] {
        try TLSCertificate.certificates(pem: issued.certificateChainPEM)
    }

    /// The server's chain.
    private func chain(_ fixture: Fixture) throws -> [TLSCertificate] {
        try #require(fixture.server.identity?.certificateChain)
    }

    @Test func aTrustedChainHasNoFaults() throws {
        let fixture = try Fixture(.tls13)
        let trust = try PeerTrust(verifying: chain(fixture), settings: fixture.client)
        #expect(trust.verdict == .trusted && trust.otherFaults.isEmpty)
        #expect(trust.serverName == Fixture.host && trust.peer == .server)
    }

    /// The order of the intermediates does not matter, but without them, the issuer is unknown.
    @Test func theIntermediatesAreUsed() throws {
        let fixture = try Fixture(.tls13)
        let chain = try chain(fixture.authority.issue(.server(names: [Fixture.host])))
        let other = try TLSCertificate(pem: Fixture.stranger.intermediatePEM)
        let longer = try PeerTrust(verifying: [chain[0], other] + chain.dropFirst(), settings: fixture.client)
        #expect(longer.verdict == .trusted)
        let shorter = try PeerTrust(verifying: [chain[0]], settings: fixture.client)
        #expect(Self.codes(shorter).contains(20))
    }

    @Test func allFaultsAreFound() throws {
        let issued = try Fixture.stranger.issue(.server(names: ["other.example.org"]), validity: .expired)
        let trust = try PeerTrust(verifying: chain(issued), settings: Fixture(.tls13).client)
        #expect(Set(Self.codes(trust)).isSuperset(of: [10, 20, 62]), "\(trust)")
    }

    @Test(arguments: versions) func aHandshakeFindsTheSameFaults(version: TLSProtocolVersion) throws {
        for validity in [CertificateAuthority.Validity.current, .expired, .notYetValid] {
            var fixture = try Fixture(version, purpose: .server(names: ["other.example.org"]), validity: validity)
            fixture.client.trustEvaluation = .manual
            let pair = try fixture.pair()
            pair.decideClientTrust = { _ in true }
            pair.shakeHands()
            #expect(try pair.clientQuestions == [PeerTrust(verifying: chain(fixture), settings: fixture.client)])
        }
    }

    @Test func clientsAreVerifiedForTheirPurpose() throws {
        let fixture = try Fixture(.tls13)
        let client = try chain(fixture.authority.issue(.client(commonName: "ada")))
        #expect(try PeerTrust(verifying: client, of: .client, settings: fixture.client).verdict == .trusted)
        #expect(try Self.codes(PeerTrust(verifying: client, settings: fixture.client)).contains(26))
        let server = try chain(fixture)
        #expect(try Self.codes(PeerTrust(verifying: server, of: .client, settings: fixture.client)) == [26])
    }

    @Test func theRulesOfTheSettingsApply() throws {
        var fixture = try Fixture(.tls13)
        let chain = try chain(fixture)
        fixture.client.proof = .certificates(TLSCertificateRules(pins: [[UInt8](repeating: 0, count: 32)]))
        #expect(try PeerTrust(verifying: chain, settings: fixture.client).verdict != .trusted)
        fixture.client.proof = .certificates(TLSCertificateRules(pins: [chain[0].publicKeySHA256]))
        #expect(try PeerTrust(verifying: chain, settings: fixture.client).verdict == .trusted)
        fixture.client.proof = .certificates(TLSCertificateRules(verificationTime: Date(timeIntervalSince1970: 1)))
        #expect(try Self.codes(PeerTrust(verifying: chain, settings: fixture.client)).contains(9))
    }

    @Test func settingsThatCannotBeUsedAreErrors() throws {
        let fixture = try Fixture(.tls13)
        #expect { try PeerTrust(verifying: [], settings: fixture.client) } throws: {
            ($0 as? TLSError)?.code == .invalidCertificate
        }
        var settings = fixture.client
        settings.proof = .dane(TLSDANE([], policy: .required))
        #expect(Self.isInvalid(settings, try chain(fixture)))
        settings.proof = .certificates(TLSCertificateRules(), ocspStapling: .required)
        #expect(Self.isInvalid(settings, try chain(fixture)))
        settings = fixture.client
        settings.serverName = nil
        #expect(Self.isInvalid(settings, try chain(fixture)))
        settings.verifiesHostName = false
        #expect(try PeerTrust(verifying: chain(fixture), settings: settings).verdict == .trusted)
    }

    private static func isInvalid(_ settings: TLSClientSettings, _ chain: [TLSCertificate]) -> Bool {
        thrown { try PeerTrust(verifying: chain, settings: settings) }?.code == .invalidSettings
    }

    @Test func aChainMayNotBeLongerThanInAHandshake() throws {
        var fixture = try Fixture(.tls13)
        let chain = try chain(fixture)
        fixture.client.maximumCertificateChainBytes = 1024
        let longer = Array(repeating: chain, count: 5).flatMap(\.self)
        #expect(try Self.codes(PeerTrust(verifying: longer, settings: fixture.client)) == [22])
    }

    private static func codes(_ trust: PeerTrust) -> [Int32] {
        ([trust.verdict] + trust.otherFaults).compactMap { if case .untrusted(_, let code, _) = $0 { code } else { nil } }
    }
}

import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

/// An error about a peer's certificates contains these certificates.
@Suite struct RejectedPeerTests {
    private func rejection(_ fixture: Fixture) throws -> PeerTrust {
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(!pair.isComplete)
        return try #require((pair.clientError ?? pair.serverError)?.peerTrust)
    }

    @Test(arguments: versions)
    func anExpiredCertificateIsInTheError(version: TLSProtocolVersion) throws {
        let trust = try rejection(Fixture(version, validity: .expired))
        let certificate = try #require(trust.rejectedCertificate)
        #expect(certificate.dnsNames == [Fixture.host])
        #expect(certificate.issuer == "CN=Test Root")
        #expect(certificate.notAfter < Date())
        #expect(trust.chain == [certificate])
        #expect(trust.peer == .server && trust.serverName == Fixture.host)
    }

    @Test(arguments: versions)
    func aCertificateForAnotherNameIsInTheError(version: TLSProtocolVersion) throws {
        let trust = try rejection(Fixture(version, purpose: .server(names: ["other.example.org"])))
        #expect(trust.rejectedCertificate?.dnsNames == ["other.example.org"])
    }

    /// The depth of a fault counts the certificates that OpenSSL used, not those that the peer sent.
    @Test(arguments: versions, [false, true])
    func theIntermediateAtFaultIsFound(version: TLSProtocolVersion, sendsAnotherBefore: Bool) throws {
        var fixture = try Fixture(version)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]))
        let intermediate = String(issued.certificateChainPEM.dropFirst(issued.certificatePEM.count))
        let other = try Fixture.stranger.issue(.server(names: [Fixture.host])).certificatePEM
        let chain = issued.certificatePEM + (sendsAnotherBefore ? other : "") + intermediate
        fixture.server.identity = try TLSIdentity(pem: chain + issued.privateKeyPEM)
        fixture.client.trustRoots = try Fixture.stranger.roots
        let trust = try rejection(fixture)
        #expect(trust.chain.count == (sendsAnotherBefore ? 3 : 2))
        #expect(trust.rejectedCertificate?.commonName == "Test Intermediate")
        #expect(trust.leaf?.commonName == Fixture.host)
    }

    @Test(arguments: versions)
    func aClientsCertificateIsInTheServersError(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        fixture.client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
        let pair = try fixture.pair()
        pair.shakeHands()
        let trust = try #require(pair.serverError?.peerTrust)
        #expect(trust.peer == .client && trust.rejectedCertificate?.commonName == "mallory")
        #expect(pair.clientError?.peerTrust == nil)
    }

    @Test(arguments: versions)
    func aCallbacksRejectionContainsTheTrustedChain(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in false }
        pair.shakeHands()
        let trust = try #require(pair.clientError?.peerTrust)
        #expect(trust.verdict == .trusted && trust.leaf?.commonName == Fixture.host)
        #expect(trust.rejectedCertificate == nil)
    }

    /// A chain that is too long is rejected before a certificate is read.
    @Test(arguments: versions)
    func aChainThatIsTooLongIsNotInTheError(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host])).identity()
        fixture.client.maximumCertificateChainLength = 1
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .certificateTooLarge)
        #expect(pair.clientError?.peerTrust?.rejectedCertificate == nil)
    }
}

import AsyncSocketsTesting
import SocketTLS
import Testing

/// Servers with an ECDSA and an RSA identity.
@Suite struct AdditionalIdentityTests {
    private var fixture: Fixture
    private let (elliptic, rsa): (TLSIdentity, TLSIdentity)

    init() throws {
        fixture = try Fixture()
        elliptic = try fixture.authority.issue(.server(names: [Fixture.host])).identity()
        rsa = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa2048, signedBy: .root).identity()
    }

    private static let algorithms = [
        ("ecdsa_secp256r1_sha256", false), ("rsa_pss_rsae_sha256:rsa_pkcs1_sha256", true),
        ("ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256:rsa_pkcs1_sha256", false),
    ]

    @Test(arguments: versions, algorithms)
    func theClientGetsACertificateThatItCanVerify(version: TLSProtocolVersion, wish: (algorithms: String, isRSA: Bool)) throws {
        for isEllipticFirst in [true, false] {
            var settings = TLSSettings.server(identity: isEllipticFirst ? elliptic : rsa)
            settings.additionalIdentities = [isEllipticFirst ? rsa : elliptic]
            let server = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
            let peer = try RawPeer(version)
            // The chain is signed with ECDSA, which is not offered by a client that verifies only RSA.
            try peer.offer(signatures: wish.algorithms)
            peer.shakeHands(with: server)
            #expect(server.handshake().isComplete)
            #expect(peer.peerCertificates == (wish.isRSA ? rsa : elliptic).certificateChain)
        }
    }

    @Test(arguments: versions) func theSettingsOfThisLibraryPreferECDSA(version: TLSProtocolVersion) throws {
        var fixture = self.fixture
        fixture.useOnly(version)
        fixture.server.identity = rsa
        fixture.server.additionalIdentities = [elliptic]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.peerCertificates == elliptic.certificateChain)
    }

    @Test func twoOfAKindAreRefused() throws {
        var settings = TLSSettings.server(identity: elliptic)
        settings.additionalIdentities = [rsa, try fixture.authority.identity(.server(names: ["other.example.org"]))]
        let error = thrown { try TLSContext.context(for: settings) }
        #expect(error?.code == .invalidSettings)
        #expect(error?.message.contains("contain two EC keys") == true)
    }

    @Test func anotherIdentityMakesAnotherContext() throws {
        var settings = TLSSettings.server(identity: elliptic)
        let context = try TLSContext.context(for: settings)
        settings.additionalIdentities = [rsa]
        let both = try TLSContext.context(for: settings)
        #expect(both !== context)
        #expect(try TLSContext.context(for: settings) === both)
        let other = try fixture.authority.issue(.server(names: ["other"]), keyType: .rsa2048).identity()
        settings.additionalIdentities = [other]
        #expect(try TLSContext.context(for: settings) !== both)
    }
}

import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

/// Servers that staple OCSP responses to their certificates.
@Suite struct ServerStaplingTests {
    private let chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate)

    init() throws {
        chain = try HandmadeCertificate.chain()
    }

    private func fixture(_ version: TLSProtocolVersion, _ identity: TLSIdentity) throws -> Fixture {
        var fixture = try Fixture(version, leaf: chain.leaf, roots: [chain.root])
        fixture.server.identity = identity
        fixture.client.values.ocspStapling = .required
        fixture.client.resumption = .none
        return fixture
    }

    @Test(arguments: versions) func aClientGetsTheResponse(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf)
        #expect(try fixture(version, chain.leaf.identity).clientError()?.verifyCode == X509_V_ERR_OCSP_VERIFY_NEEDED)
        #expect(try fixture(version, chain.leaf.identity.stapling(ocspResponse: response)).clientError() == nil)
    }

    @Test(arguments: versions) func theSessionContainsTheResponse(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf)
        let pair = try fixture(version, chain.leaf.identity.stapling(ocspResponse: response)).pair()
        pair.shakeHands()
        #expect(pair.client.session?.ocspResponse == response)
        #expect(pair.server.session?.ocspResponse == nil)
    }

    @Test(arguments: versions) func aClientThatDoesNotAskGetsNone(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf)
        var fixture = try fixture(version, chain.leaf.identity.stapling(ocspResponse: response))
        fixture.client.values.ocspStapling = .none
        #expect(try fixture.clientError() == nil)
    }

    /// Each certificate has its own.
    @Test(arguments: versions) func theResponseFollowsTheIdentity(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf)
        var fixture = try Fixture(version, leaf: chain.leaf, roots: [chain.root])
        let stranger = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa2048).identity()
        fixture.server.identity = stranger
        fixture.server.additionalIdentities = [try chain.leaf.identity.stapling(ocspResponse: response)]
        fixture.client.values.ocspStapling = .required
        fixture.client.policy.signatureAlgorithms = ["ecdsa_secp256r1_sha256"]
        #expect(try fixture.clientError() == nil)
        // The RSA certificate has no response.
        fixture.client.policy = .intermediate
        fixture.client.policy.signatureAlgorithms = ["rsa_pss_rsae_sha256", "rsa_pkcs1_sha256", "ecdsa_secp256r1_sha256"]
        fixture.client.policy.cipherSuites.removeAll { $0.contains("ECDSA") }
        fixture.client.trustRoots = try fixture.authority.roots
        fixture.server.policy.prefersServerCipherSuites = false
        fixture.server.policy.signatureAlgorithms = ["rsa_pss_rsae_sha256", "rsa_pkcs1_sha256", "ecdsa_secp256r1_sha256"]
        #expect(try fixture.clientError()?.verifyCode == X509_V_ERR_OCSP_VERIFY_NEEDED)
    }

    @Test func whatAClientWouldRefuseIsAnError() throws {
        let identity = try chain.leaf.identity
        func code(_ response: [UInt8], issuer: TLSCertificate? = nil) -> TLSError.Code? {
            thrown { try identity.stapling(ocspResponse: response, issuer: issuer) }?.code
        }
        let other = try HandmadeCertificate("Other", HandmadeCertificate.server(), signedBy: chain.intermediate)
        #expect(
            try code(chain.intermediate.response(about: chain.leaf, .init(status: V_OCSP_CERTSTATUS_REVOKED)))
                == .certificateRevoked)
        #expect(try code(chain.intermediate.response(about: chain.leaf, .init(hours: -48 ..< -24))) == .certificateRejected)
        #expect(try code(chain.intermediate.response(about: other)) == .certificateRejected)
        #expect(try code(chain.root.response(about: chain.leaf)) == .certificateRejected)
        #expect(code([]) == .certificateRejected)
        #expect(code([UInt8](repeating: 0x30, count: 100_000)) == .certificateRejected)
        let good = try chain.intermediate.response(about: chain.leaf)
        #expect(code(good) == nil)
        #expect(code(good.dropLast()) == .certificateRejected)
        #expect(try code(good, issuer: chain.root.certificate) == .certificateRejected)
    }

    @Test func withoutItsIssuerAResponseCannotBeJudged() throws {
        let direct = try HandmadeCertificate("Direct", HandmadeCertificate.server(), signedBy: chain.root)
        let response = try chain.root.response(about: direct)
        let identity = try direct.identity
        #expect(thrown { try identity.stapling(ocspResponse: response) }?.code == .invalidCertificate)
        let stapled = try identity.stapling(ocspResponse: response, issuer: chain.root.certificate)
        #expect(try fixture(.tls13, stapled).clientError() == nil)
        #expect(stapled != identity)
    }

    /// A client would still accept it for five minutes, because clocks differ.
    @Test(arguments: versions) func aResponseThatHasEndedIsNotStapled(version: TLSProtocolVersion) throws {
        for (seconds, code) in [(-60, X509_V_ERR_OCSP_VERIFY_NEEDED), (3600, nil)] {
            let response = try chain.intermediate.response(about: chain.leaf, .init(seconds: seconds))
            let fixture = try fixture(version, chain.leaf.identity.stapling(ocspResponse: response))
            #expect(try fixture.clientError()?.verifyCode == code, "\(seconds)")
        }
    }
}

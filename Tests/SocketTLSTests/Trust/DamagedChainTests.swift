import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

/// Chains for which OpenSSL leaves errors in its queue while verifying them. These errors belong to the
/// verdict, not to the handshake.
@Suite struct DamagedChainTests {
    /// A fault of an intermediate certificate.
    enum Fault: CaseIterable {
        case signature, extensions
    }

    private func identity(_ fault: Fault, purpose: String) throws -> (identity: TLSIdentity, root: TLSCertificate) {
        let root = try CertificatePlan.authority("Root", PooledKey.curves256[0]).make()
        var between = CertificatePlan.authority("Intermediate", PooledKey.curves256[1])
        switch fault {
        case .signature: between.damage = .contents
        // Name constraints that cannot be decoded.
        case .extensions: between.raw = [("2.5.29.30", [0x05, 0x00], false)]
        }
        let intermediate = try between.make(signedBy: root)
        var plan = CertificatePlan.server(["DNS:\(Fixture.host)"], PooledKey.curves256[2])
        plan.extendedKeyUsage = purpose
        let chain = [try plan.make(signedBy: intermediate), intermediate]
        let key = try TLSPrivateKey(der: MemoryBytes.written { i2d_PrivateKey_bio($0, plan.key.pointer) })
        let identity = try TLSIdentity(certificateChain: chain.map { try TLSCertificate(der: $0.bytes) }, privateKey: key)
        return (identity, try TLSCertificate(der: root.bytes))
    }

    @Test(arguments: versions, Fault.allCases)
    func whoDecidesAloneIsAskedAboutAServer(version: TLSProtocolVersion, fault: Fault) throws {
        var fixture = try Fixture(version)
        let (identity, root) = try identity(fault, purpose: "serverAuth")
        fixture.server.identity = identity
        fixture.client.trustRoots = .certificates([root])
        fixture.client.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.clientQuestions.first?.verdict.isTrusted == false)
        #expect(pair.isComplete, "\(pair.clientError.map(\.description) ?? "")")
    }

    @Test(arguments: versions, Fault.allCases)
    func whoDecidesAloneIsAskedAboutAClient(version: TLSProtocolVersion, fault: Fault) throws {
        var fixture = try Fixture(version)
        let (identity, root) = try identity(fault, purpose: "clientAuth")
        fixture.client.identity = identity
        fixture.server.values.clientCertificates = .required
        fixture.server.trustRoots = .certificates([root])
        fixture.server.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.serverQuestions.first?.verdict.isTrusted == false)
        #expect(pair.isComplete, "\(pair.serverError.map(\.description) ?? "")")
    }

    @Test(arguments: versions, Fault.allCases)
    func theReasonIsTheVerdictWhenNoOneIsAsked(version: TLSProtocolVersion, fault: Fault) throws {
        var fixture = try Fixture(version)
        let (identity, root) = try identity(fault, purpose: "serverAuth")
        fixture.server.identity = identity
        fixture.client.trustRoots = .certificates([root])
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == (fault == .signature ? .certificateRejected : .unknownIssuer))
        #expect(pair.clientError?.fault == .certificate)
    }
}

extension PeerTrust.Verdict {
    fileprivate var isTrusted: Bool { self == .trusted }
}

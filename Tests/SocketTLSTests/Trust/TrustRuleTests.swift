import AsyncSocketsTesting
import COpenSSL
import FoundationEssentials
import SocketTLS
import Testing

@Suite struct TrustRuleTests {
    @Test func partialChainsAreAcceptedOnlyIfEnabled() throws {
        let chain = try HandmadeCertificate.chain()
        var fixture = try Fixture(leaf: chain.leaf, roots: [chain.intermediate])
        #expect(try fixture.clientError()?.code == .unknownIssuer)
        fixture.client.values.rules.acceptsPartialChains = true
        #expect(try fixture.clientError() == nil)
        fixture.client.trustRoots = try .certificates([chain.leaf.certificate])
        #expect(try fixture.clientError() == nil)
        fixture.client.trustRoots = try Fixture.stranger.roots
        #expect(try fixture.clientError()?.code == .unknownIssuer)
    }

    @Test(arguments: versions) func theVerificationTimeCanBeFixed(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version, validity: .expired)
        #expect(try fixture.clientError()?.code == .certificateExpired)
        fixture.client.values.rules.verificationTime = Date() - 10 * 86_400
        #expect(try fixture.clientError() == nil)
        fixture.client.values.rules.verificationTime = Date() - 100 * 86_400
        #expect(try fixture.clientError()?.code == .certificateNotYetValid)
    }

    @Test(arguments: [Double.nan, .infinity, 1e12]) func aTimeOutOfReachIsRefused(seconds: Double) throws {
        var settings = TLSSettings.client(serverName: "a")
        settings.values.rules.verificationTime = Date(timeIntervalSince1970: seconds)
        #expect(thrown { try TLSContext.context(for: settings) }?.message.contains("verificationTime") == true)
    }

    @Test func strictModeRejectsCertificatesThatViolateRFC5280() throws {
        let identifiers = HandmadeCertificate.authority.filter { $0.0 != NID_authority_key_identifier }
        let chain = try HandmadeCertificate.chain(intermediate: identifiers)
        var fixture = try Fixture(leaf: chain.leaf, roots: [chain.root])
        #expect(try fixture.clientError() == nil)
        fixture.client.values.rules.isStrict = true
        #expect(try fixture.clientError()?.code == .certificateRejected)
    }

    @Test(arguments: versions) func strictModeRejectsAPeerWithACACertificate(version: TLSProtocolVersion) throws {
        let chain = try HandmadeCertificate.chain(leaf: HandmadeCertificate.server(isAuthority: true))
        var fixture = try Fixture(version, leaf: chain.leaf, roots: [chain.root])
        #expect(try fixture.clientError() == nil)
        fixture.client.values.rules.isStrict = true
        let error = try fixture.clientError()
        #expect(error?.code == .certificateRejected)
        #expect(error?.message.contains("CA:TRUE") == true)
        #expect(error?.sentAlert == .unsupportedCertificate)
    }

    @Test(arguments: versions) func strictModeAcceptsAGoodChain(version: TLSProtocolVersion) throws {
        let chain = try HandmadeCertificate.chain()
        var fixture = try Fixture(version, leaf: chain.leaf, roots: [chain.root])
        fixture.client.values.rules.isStrict = true
        #expect(try fixture.clientError() == nil)
    }

    @Test func eachRuleMakesAContextOfItsOwn() throws {
        let settings = try Fixture().client
        let context = try TLSContext.context(for: settings)
        let changes: [(inout TLSClientSettings) -> Void] = [
            { $0.values.rules.acceptsPartialChains = true }, { $0.values.rules.verificationTime = Date() },
            { $0.values.rules.isStrict = true },
            { $0.values.rules.pins = [[UInt8](repeating: 0, count: 32)] }, { $0.values.rules.onlyReportsPins = true },
            { $0.values.ocspStapling = .requested },
        ]
        for change in changes {
            var other = settings
            change(&other)
            #expect(try TLSContext.context(for: other) !== context)
            #expect(try TLSContext.context(for: other) === TLSContext.context(for: other))
        }
    }

    @Test func aServerThatAsksForNothingIgnoresTheRules() throws {
        var settings = try Fixture().server
        let context = try TLSContext.context(for: settings)
        settings.values.rules.isStrict = true
        #expect(try TLSContext.context(for: settings) === context)
    }
}

@Suite struct PinTests {
    private let chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate)

    init() throws {
        chain = try HandmadeCertificate.chain()
    }

    private func fixture(_ version: TLSProtocolVersion = .tls13) throws -> Fixture {
        try Fixture(version, leaf: chain.leaf, roots: [chain.root])
    }

    private static let stranger = [UInt8](repeating: 7, count: 32)

    @Test(arguments: versions) func anyKeyOfTheVerifiedChainMayBePinned(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        for pinned in [chain.leaf, chain.intermediate, chain.root] {
            fixture.client.values.rules.pins = [try pinned.certificate.publicKeySHA256, Self.stranger]
            let pair = try fixture.pair()
            pair.shakeHands()
            #expect(pair.isComplete)
            #expect(pair.client.session?.matchesPins == true)
            #expect(pair.server.session?.matchesPins == nil)
        }
    }

    @Test(arguments: versions) func aChainWithoutAPinnedKeyIsRefused(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        fixture.client.values.rules.pins = [Self.stranger]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .pinMismatch)
        #expect(pair.clientError?.fault == .certificate)
        #expect(pair.clientError?.message.contains("\"Server\"") == true)
        #expect(pair.clientError?.sentAlert == .badCertificate)
        #expect(pair.serverError?.alert == .badCertificate)
    }

    /// The peer may send any certificate in addition to its chain.
    @Test func aPinnedKeyOutsideOfTheVerifiedChainDoesNotCount() throws {
        var fixture = try fixture()
        let pinned = try HandmadeCertificate("Pinned", HandmadeCertificate.authority)
        let identity = try chain.leaf.identity
        fixture.server.identity = try TLSIdentity(
            certificateChain: identity.certificateChain + [pinned.certificate], privateKey: identity.privateKey)
        fixture.client.values.rules.pins = [try pinned.certificate.publicKeySHA256]
        #expect(try fixture.clientError()?.code == .pinMismatch)
    }

    @Test func aPinDoesNotMakeAChainTrusted() throws {
        var fixture = try fixture()
        fixture.client.trustRoots = try Fixture.stranger.roots
        fixture.client.values.rules.pins = [try chain.leaf.certificate.publicKeySHA256]
        #expect(try fixture.clientError()?.code == .unknownIssuer)
    }

    @Test(arguments: versions) func pinsThatOnlyReportRefuseNoOne(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        fixture.client.values.rules.pins = [Self.stranger]
        fixture.client.values.rules.onlyReportsPins = true
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.matchesPins == false)
    }

    @Test func aCallbackIsNotAskedAboutAMismatch() throws {
        var fixture = try fixture()
        fixture.client.values.rules.pins = [Self.stranger]
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.clientError?.code == .pinMismatch)
        #expect(pair.clientQuestions.isEmpty)
    }

    @Test(arguments: versions) func aServerPinsTheKeysOfItsClients(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate("alice")
        let alice = try #require(fixture.client.identity?.certificateChain.first)
        fixture.server.values.rules.pins = [alice.publicKeySHA256]
        let accepted = try fixture.pair()
        accepted.shakeHands()
        #expect(accepted.isComplete && accepted.server.session?.matchesPins == true)
        try fixture.showClientCertificate("mallory")
        let refused = try fixture.pair()
        refused.shakeHands()
        #expect(refused.serverError?.code == .pinMismatch)
        #expect(refused.serverError?.sentAlert == .badCertificate)
    }

    @Test func aRenewedCertificateKeepsItsPin() throws {
        let certificate = try chain.leaf.certificate
        #expect(certificate.publicKeySHA256.count == 32)
        #expect(try certificate.publicKeySHA256 == TLSCertificate(pem: certificate.pem).publicKeySHA256)
        #expect(try certificate.publicKeySHA256 != chain.root.certificate.publicKeySHA256)
        #expect(certificate.publicKeySHA256 != certificate.sha256Fingerprint)
    }

    @Test func aPinIsADigest() throws {
        var settings = try fixture().client
        settings.values.rules.pins = [[1, 2, 3]]
        #expect(thrown { try TLSContext.context(for: settings) }?.message.contains("32 bytes") == true)
    }
}

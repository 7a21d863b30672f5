import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// All evidence about a certificate counts, even together with other faults, and for as long as it is valid.
@Suite(.timeLimit(.patient), .ownThreads) struct EvidenceTests {
    private let chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate)

    init() throws {
        chain = try HandmadeCertificate.chain()
    }

    private func fixture(_ version: TLSProtocolVersion) throws -> Fixture {
        try Fixture(version, leaf: chain.leaf, roots: [chain.root])
    }

    private func lists(_ days: Range<Int> = -1..<7, revoking revoked: [HandmadeCertificate] = []) throws -> [TemporaryFile] {
        [
            try TemporaryFile(bytes: chain.root.revocationList()),
            try TemporaryFile(bytes: chain.intermediate.revocationList(of: revoked, days: days)),
        ]
    }

    // MARK: - Two faults

    /// Returns the faults reported to a client with `.manual`, and the result if it accepts all of them.
    private func manual(_ settings: TLSClientSettings, response: [UInt8]?) throws -> (faults: [Int32], error: TLSError?) {
        var settings = settings
        settings.trustEvaluation = .manual
        let server = try StaplingServer(chain.leaf, chain: [chain.intermediate], response: response)
        var faults: [Int32] = []
        let error = try server.error(of: settings) { trust in
            faults = ([trust.verdict] + trust.otherFaults).compactMap {
                if case .untrusted(_, let code, _) = $0 { code } else { nil }
            }
            return true
        }.error
        return (faults, error)
    }

    @Test(arguments: versions) func aWrongNameHidesNoRevocation(version: TLSProtocolVersion) throws {
        let files = try lists(revoking: [chain.leaf])
        var settings = try Fixture(version, serverName: "other.example.org").client
        settings.trustRoots = try .certificates([chain.root.certificate])
        settings.values.rules.revocationLists = files.map { .file(path: $0.path) }
        let faults = try manual(settings, response: nil).faults
        #expect(faults.first == X509_V_ERR_CERT_REVOKED)
        #expect(Set(faults) == [X509_V_ERR_CERT_REVOKED, X509_V_ERR_HOSTNAME_MISMATCH])
    }

    @Test(arguments: versions, [true, false])
    func aWrongNameHidesNoStapledAnswer(version: TLSProtocolVersion, isRevoked: Bool) throws {
        var settings = try Fixture(version, serverName: "other.example.org").client
        settings.trustRoots = try .certificates([chain.root.certificate])
        settings.values.ocspStapling = .required
        let response =
            isRevoked ? try chain.intermediate.response(about: chain.leaf, .init(status: V_OCSP_CERTSTATUS_REVOKED)) : nil
        let (faults, error) = try manual(settings, response: response)
        #expect(faults == [X509_V_ERR_HOSTNAME_MISMATCH])
        #expect(error?.verifyCode == (isRevoked ? X509_V_ERR_CERT_REVOKED : X509_V_ERR_OCSP_VERIFY_NEEDED))
    }

    /// With a wrong name and with an unknown root. No callback can replace the pinned key.
    @Test(arguments: versions, [true, false])
    func noFaultHidesAPin(version: TLSProtocolVersion, isNameWrong: Bool) throws {
        var settings = try Fixture(version, serverName: isNameWrong ? "other.example.org" : Fixture.host).client
        settings.trustRoots = try isNameWrong ? .certificates([chain.root.certificate]) : Fixture.stranger.roots
        settings.values.rules.pins = [[UInt8](repeating: 7, count: 32)]
        #expect(try manual(settings, response: nil).error?.code == .pinMismatch)
        // The intermediate proves nothing if its root is unknown.
        settings.values.rules.pins = [try chain.intermediate.certificate.publicKeySHA256]
        #expect(try manual(settings, response: nil).error?.code == (isNameWrong ? nil : .pinMismatch))
        settings.values.rules.pins = [try chain.leaf.certificate.publicKeySHA256]
        #expect(try manual(settings, response: nil).error == nil)
    }

    /// The callback may accept an unknown root. Then only the peer's own key is evidence.
    @Test(arguments: versions, [true, false])
    func aReportedPinCountsOnlyInWhatIsTrusted(version: TLSProtocolVersion, isRootKnown: Bool) throws {
        var fixture = try fixture(version)
        if !isRootKnown { fixture.client.trustRoots = try Fixture.stranger.roots }
        fixture.client.trustEvaluation = .manual
        fixture.client.values.rules.onlyReportsPins = true
        for (pinned, matches) in [(chain.intermediate, isRootKnown), (chain.leaf, true)] {
            fixture.client.values.rules.pins = [try pinned.certificate.publicKeySHA256]
            let pair = try fixture.pair()
            pair.decideClientTrust = { _ in true }
            pair.shakeHands()
            #expect(pair.client.session?.matchesPins == matches, "\(String(describing: pair.clientError))")
        }
    }

    // MARK: - The end of evidence

    /// Performs a full handshake and returns its session.
    private func session(_ fixture: Fixture) throws -> TLSResumableSession {
        let pair = try fixture.pair()
        pair.shakeHands()
        try #require(pair.isComplete, "\(String(describing: pair.clientError))")
        #expect(try pair.exchange([1], from: .server) == [1])
        return try #require(pair.client.session?.resumable)
    }

    /// Each end is the earliest of all in one case.
    @Test(arguments: versions) func aSessionEndsWithTheProof(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        fixture.server.sessionTickets = .issued(1)
        let plain = try session(fixture)
        #expect(plain.end.timeIntervalSinceNow > 3000)
        let files = try [
            TemporaryFile(bytes: chain.root.revocationList(endingIn: 1800)),
            TemporaryFile(bytes: chain.intermediate.revocationList(endingIn: 2400)),
        ]
        fixture.client.values.rules.revocationLists = files.map { .file(path: $0.path) }
        let bound = try session(fixture)
        #expect((1000...1801).contains(bound.end.timeIntervalSinceNow), "\(bound.end)")
        fixture.client.values.rules.revocationScope = .leaf
        #expect((1802...2401).contains(try session(fixture).end.timeIntervalSinceNow))
        let copy = try TLSResumableSession(bytes: bound.bytes)
        #expect(abs(copy.end.timeIntervalSince(bound.end)) < 1)
    }

    @Test(arguments: versions) func aSessionEndsWithTheStapledAnswer(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        fixture.client.values.ocspStapling = .required
        fixture.server.sessionTickets = .issued(1)
        var ends: [Double] = []
        for seconds in [600, 1800] {
            let response = try chain.intermediate.response(about: chain.leaf, .init(seconds: seconds))
            fixture.server.identity = try chain.leaf.identity.stapling(ocspResponse: response)
            ends.append(try session(fixture).end.timeIntervalSinceNow)
        }
        #expect(ends[0] < 601 && ends[0] > 0 && ends[1] > 1000 && ends[1] < 1801, "\(ends)")
    }

    // MARK: - Lists

    @Test func aDeltaListIsNoCompleteList() throws {
        var fixture = try fixture(.tls13)
        let base = try TemporaryFile(bytes: chain.intermediate.revocationList(of: [chain.leaf]))
        let delta = try TemporaryFile(bytes: chain.intermediate.revocationList(isDelta: true))
        fixture.client.values.rules.revocationLists = [base, delta].map { .file(path: $0.path) }
        fixture.client.values.rules.revocationScope = .leaf
        let error = thrown { try fixture.clientError() }
        #expect(error?.code == .invalidCertificate)
        #expect(error?.message.contains(delta.path) == true && error?.message.contains("delta") == true)
    }

    // MARK: - Key usage

    @Test(arguments: versions, ["keyEncipherment", "keyAgreement", "keyEncipherment,keyAgreement"])
    func aKeyThatMayNotSignIsRefused(version: TLSProtocolVersion, usage: String) throws {
        let extensions = HandmadeCertificate.server().map { $0.0 == NID_key_usage ? ($0.0, "critical," + usage) : $0 }
        let leaf = try HandmadeCertificate("Server", extensions, signedBy: chain.intermediate, curve: nil)
        var fixture = try Fixture(version, leaf: leaf, roots: [chain.root])
        let error = try fixture.clientError()
        #expect(error?.verifyCode == X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE)
        #expect(error?.fault == .certificate)
        fixture.client.policy = .compatible
        #expect(try fixture.clientError() == nil)
    }

    @Test(arguments: versions) func aCertificateWithoutKeyUsageMaySign(version: TLSProtocolVersion) throws {
        let extensions = HandmadeCertificate.server().filter { $0.0 != NID_key_usage }
        let leaf = try HandmadeCertificate("Server", extensions, signedBy: chain.intermediate)
        #expect(try Fixture(version, leaf: leaf, roots: [chain.root]).clientError() == nil)
    }
}

import AsyncSocketsTesting
import COpenSSL
import FoundationEssentials
import SocketTLS
import SocketTestTraits
import Testing

/// A peer with one fault or two, in every mode of trust evaluation. Neither fault hides the other.
@Suite(.timeLimit(.patient), .ownThreads) struct TwoFaultsTests {
    private enum Fault: CaseIterable {
        case wrongName, unknownRoot, expired, revokedByList, keyUsage, wrongPin, revokedByResponse, noResponse

        var codes: Set<Int32> {
            switch self {
            case .wrongName: [X509_V_ERR_HOSTNAME_MISMATCH]
            case .unknownRoot: [X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY]
            case .expired: [X509_V_ERR_CERT_HAS_EXPIRED]
            case .revokedByList, .revokedByResponse: [X509_V_ERR_CERT_REVOKED]
            case .keyUsage: [X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE]
            case .wrongPin: [X509_V_ERR_APPLICATION_VERIFICATION]
            case .noResponse: [X509_V_ERR_OCSP_VERIFY_NEEDED]
            }
        }

        /// No callback can overrule it.
        var isFinal: Bool { self == .wrongPin || comesLater }

        /// Whether it is detected after the chain is evaluated.
        var comesLater: Bool { self == .revokedByResponse || self == .noResponse }

        /// Client names are not checked, and clients do not staple responses.
        var concernsClients: Bool { self != .wrongName && !comesLater }
    }

    private let root: HandmadeCertificate
    private let intermediate: HandmadeCertificate
    /// Indexed by whether they have expired, and by whether their key may not sign.
    private let leaves: [[HandmadeCertificate]]
    private let strangers: TLSTrustRoots

    init() throws {
        let root = try HandmadeCertificate("Root", HandmadeCertificate.authority)
        let intermediate = try HandmadeCertificate("Intermediate", HandmadeCertificate.authority, signedBy: root)
        let names = HandmadeCertificate.server().filter { $0.0 != NID_ext_key_usage }
        let agreeing = names.map { $0.0 == NID_key_usage ? ($0.0, "critical,keyAgreement") : $0 }
        leaves = try [-1..<30, -9 ..< -1].map { days in
            [
                try HandmadeCertificate("Leaf", names, days: days, signedBy: intermediate),
                try HandmadeCertificate("Leaf", agreeing, days: days, signedBy: intermediate, curve: nil),
            ]
        }
        (self.root, self.intermediate, strangers) = (root, intermediate, try Fixture.stranger.roots)
    }

    /// No fault, each single one, and all possible pairs.
    private static func combinations(for verifier: Side) -> [Set<Fault>] {
        let faults = Fault.allCases.filter { verifier == .client || $0.concernsClients }
        let pairs = faults.flatMap { first in faults.map { Set([first, $0]) } }
        return [[]] + Set(pairs).subtracting([[.revokedByResponse, .noResponse]])
    }

    private func leaf(_ faults: Set<Fault>) -> HandmadeCertificate {
        leaves[faults.contains(.expired) ? 1 : 0][faults.contains(.keyUsage) ? 1 : 0]
    }

    private func setVerification(
        _ settings: inout TLSSettingValues, _ faults: Set<Fault>, _ list: TemporaryFile, _ evaluation: TLSTrustEvaluation
    ) throws {
        settings.trustEvaluation = evaluation
        settings.trustRoots = faults.contains(.unknownRoot) ? strangers : .certificates([try root.certificate])
        settings.rules.revocationLists = [.file(path: list.path)]
        settings.rules.revocationScope = .leaf
        settings.rules.pins = [
            faults.contains(.wrongPin) ? [UInt8](repeating: 7, count: 32) : try leaf(faults).certificate.publicKeySHA256
        ]
    }

    /// Returns the trust callbacks of a side that accepts everything, and the result.
    private func judge(
        _ faults: Set<Fault>, by verifier: Side, _ version: TLSProtocolVersion, _ evaluation: TLSTrustEvaluation
    ) throws -> (questions: [PeerTrust], error: TLSError?) {
        let leaf = leaf(faults)
        let list = try TemporaryFile(bytes: intermediate.revocationList(of: faults.contains(.revokedByList) ? [leaf] : []))
        var fixture = try Fixture(version, serverName: faults.contains(.wrongName) ? "other.example.org" : Fixture.host)
        guard verifier == .client else {
            fixture.client.identity = try leaf.identity
            fixture.client.trustRoots = try fixture.authority.roots
            fixture.server.values.clientCertificates = .required
            try setVerification(&fixture.server.values, faults, list, evaluation)
            let pair = try fixture.pair()
            pair.decideServerTrust = { _ in true }
            pair.shakeHands()
            #expect(pair.serverError != nil || pair.isComplete)
            return (pair.serverQuestions, pair.serverError)
        }
        try setVerification(&fixture.client.values, faults, list, evaluation)
        fixture.client.values.ocspStapling = .required
        let status = faults.contains(.revokedByResponse) ? V_OCSP_CERTSTATUS_REVOKED : V_OCSP_CERTSTATUS_GOOD
        let response = try intermediate.response(about: leaf, .init(status: status))
        let server = try StaplingServer(
            leaf, chain: [intermediate], response: faults.contains(.noResponse) ? nil : response)
        var questions: [PeerTrust] = []
        let error = try server.error(of: fixture.client) {
            questions.append($0)
            return true
        }.error
        return (questions, error)
    }

    private static func codes(_ trust: PeerTrust) -> Set<Int32> {
        Set(
            ([trust.verdict] + trust.otherFaults).compactMap {
                if case .untrusted(_, let code, _) = $0 { code } else { nil }
            })
    }

    /// OpenSSL's verdict is final, and one of the faults is its reason.
    @Test(arguments: versions, Side.allCases)
    func twoFaultsAreRefusedAsOneIs(version: TLSProtocolVersion, verifier: Side) throws {
        for faults in Self.combinations(for: verifier) {
            for evaluation in [TLSTrustEvaluation.builtIn, .delegate] {
                let (questions, error) = try judge(faults, by: verifier, version, evaluation)
                #expect((error == nil) == faults.isEmpty, "\(faults)")
                // A valid chain is passed to the callback before the response is evaluated.
                let isAsked = evaluation == .delegate && faults.allSatisfy(\.comesLater)
                #expect(questions.map(\.verdict) == (isAsked ? [.trusted] : []), "\(faults)")
                guard let code = error?.verifyCode else { continue }
                #expect(faults.contains { $0.codes.contains(code) }, "\(faults): \(String(describing: error))")
            }
        }
    }

    /// A callback receives all faults that it may overrule, and cannot overrule others.
    @Test(arguments: versions, Side.allCases)
    func aCallbackSeesBothOfTwoFaults(version: TLSProtocolVersion, verifier: Side) throws {
        for faults in Self.combinations(for: verifier) {
            let (questions, error) = try judge(faults, by: verifier, version, .manual)
            let final = faults.filter(\.isFinal)
            #expect((error == nil) == final.isEmpty, "\(faults): \(String(describing: error))")
            if let code = error?.verifyCode { #expect(final.contains { $0.codes.contains(code) }, "\(faults)") }
            // The callback is not called for a chain without a pinned key.
            #expect(questions.count == (faults.contains(.wrongPin) ? 0 : 1), "\(faults)")
            guard let trust = questions.first else { continue }
            let expected = faults.subtracting(final).reduce(into: Set<Int32>()) { $0.formUnion($1.codes) }
            #expect(Self.codes(trust).isSuperset(of: expected), "\(faults): \(trust)")
            // Without its root, a chain has additional faults.
            #expect(faults.contains(.unknownRoot) || Self.codes(trust) == expected, "\(faults): \(trust)")
        }
    }
}

import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Changing the anchors or the policy of a trust discards the result of its last evaluation.
@Suite(.timeLimit(.patient)) struct TrustResultTests {
    enum Change: CaseIterable, Sendable {
        case otherAnchors, noAnchors, systemRootsToo, anchorsAlone, otherName, clientPolicy
    }

    private func trust() throws -> SecTrust {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let chain = [
            try TestIdentity.certificate(pem: issued.certificatePEM),
            try TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM),
        ]
        var trust: SecTrust?
        let policy = SecPolicyCreateSSL(true, "localhost" as CFString)
        #expect(SecTrustCreateWithCertificates(chain as CFArray, policy, &trust) == errSecSuccess)
        return try #require(trust)
    }

    private func result(_ trust: SecTrust) -> SecTrustResultType {
        var result = SecTrustResultType.otherError
        #expect(SecTrustGetTrustResult(trust, &result) == errSecSuccess)
        return result
    }

    private func apply(_ change: Change, to trust: SecTrust) throws -> OSStatus {
        switch change {
        case .otherAnchors:
            SecTrustSetAnchorCertificates(
                trust, [try TestIdentity.certificate(pem: TestCertificates.stranger.rootPEM)] as CFArray)
        case .noAnchors: SecTrustSetAnchorCertificates(trust, nil)
        case .systemRootsToo: SecTrustSetAnchorCertificatesOnly(trust, false)
        case .anchorsAlone: SecTrustSetAnchorCertificatesOnly(trust, true)
        case .otherName: SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, "example.org" as CFString))
        case .clientPolicy: SecTrustSetPolicies(trust, [SecPolicyCreateSSL(false, nil)] as CFArray)
        }
    }

    @Test(arguments: Change.allCases) func aChangeEndsTheResult(_ change: Change) throws {
        let trust = try trust()
        #expect(SecTrustSetAnchorCertificates(trust, [try TestIdentity.root] as CFArray) == errSecSuccess)
        var error: CFError?
        #expect(SecTrustEvaluateWithError(trust, &error) && error == nil && result(trust) == .unspecified)
        #expect(try apply(change, to: trust) == errSecSuccess)
        #expect(result(trust) == .invalid)
        let isStillTrusted = change == .systemRootsToo || change == .anchorsAlone
        #expect(SecTrustEvaluateWithError(trust, &error) == isStillTrusted && (error == nil) == isStillTrusted)
        #expect(result(trust) == (isStillTrusted ? .unspecified : .recoverableTrustFailure))
    }

    @Test func thePropertiesNameTheCertificateThatIsNotTrusted() throws {
        let trust = try trust()
        #expect(SecTrustSetAnchorCertificates(trust, [try TestIdentity.root] as CFArray) == errSecSuccess)
        let titles = try #require(SecTrustCopyCertificateChain(trust) as? [SecCertificate]).map {
            SecCertificateCopySubjectSummary($0).map { $0 as String } ?? ""
        }
        // This evaluates the trust.
        #expect(result(trust) == .invalid && Spellings.reasons(trust) == titles.map { "\($0): ok" })
        #expect(result(trust) == .unspecified)
        _ = SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, "example.org" as CFString))
        var error: CFError?
        #expect(!SecTrustEvaluateWithError(trust, &error))
        let reason = try #require(error).localizedDescription
        #expect(Spellings.reasons(trust) == ["\(titles[0]): \(reason)", "\(titles[1]): ok"])
        // The intermediate's issuer is not known.
        _ = SecTrustSetPolicies(trust, SecPolicyCreateBasicX509())
        _ = try apply(.otherAnchors, to: trust)
        let reasons = Spellings.reasons(trust)
        #expect(reasons.count == 2 && reasons[0] == "\(titles[0]): ok" && !reasons[1].hasSuffix(": ok"))
    }

    @Test func bytesOfACertificateCanBeComparedWithAPin() throws {
        let trust = try trust()
        let leaf = try #require(SecTrustGetCertificateAtIndex(trust, 0))
        #expect(!Spellings.hasBytes(trust, of: SecCertificateCopyData(leaf)))
        #expect(SecTrustSetAnchorCertificates(trust, [try TestIdentity.root] as CFArray) == errSecSuccess)
        #expect(Spellings.hasBytes(trust, of: SecCertificateCopyData(leaf)))
        #expect(!Spellings.hasBytes(trust, of: SecCertificateCopyData(try TestIdentity.root)))
        let data = Data([1, 2, 3]) as CFData
        #expect(CFDataGetLength(data) == 3 && CFDataGetBytePtr(data)[2] == 3 && CFDataGetLength(CFData()) == 0)
    }

    /// An untrusted chain becomes trusted with the right anchors.
    @Test func anchorsThatComeLaterCount() throws {
        let trust = try trust()
        var error: CFError?
        #expect(!SecTrustEvaluateWithError(trust, &error) && error?.code == Int(errSecNotTrusted))
        #expect(result(trust) == .recoverableTrustFailure)
        #expect(SecTrustSetAnchorCertificates(trust, [try TestIdentity.root] as CFArray) == errSecSuccess)
        #expect(result(trust) == .invalid)
        #expect(SecTrustEvaluateWithError(trust, &error) && error == nil)
        // Invalid arguments do not change the trust.
        #expect(SecTrustSetAnchorCertificates(trust, ["root"] as CFArray) == errSecParam)
        #expect(SecTrustSetPolicies(trust, NSNull()) == errSecParam)
        #expect(result(trust) == .unspecified)
    }

    /// A host name that does not match has its own error code.
    @Test func aNameThatDoesNotMatchHasItsNumber() throws {
        let trust = try trust()
        #expect(SecTrustSetAnchorCertificates(trust, [try TestIdentity.root] as CFArray) == errSecSuccess)
        var error: CFError?
        for (name, code) in [("localhost", nil), ("example.org", errSecHostNameMismatch), ("127.0.0.1", errSecHostNameMismatch)] {
            #expect(SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, name as CFString)) == errSecSuccess)
            #expect(SecTrustEvaluateWithError(trust, &error) == (code == nil) && error?.code == code.map { Int($0) })
        }
        // The basic policy verifies no name.
        #expect(SecTrustSetPolicies(trust, SecPolicyCreateBasicX509()) == errSecSuccess)
        #expect(SecTrustEvaluateWithError(trust, &error))
    }
}

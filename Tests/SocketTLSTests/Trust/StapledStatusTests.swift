import AsyncSocketsTesting
import COpenSSL
import FoundationEssentials
import SocketTLS
import Testing

@Suite struct StapledStatusTests {
    private let chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate)

    init() throws {
        chain = try HandmadeCertificate.chain()
    }

    private func settings(_ version: TLSProtocolVersion, _ stapling: TLSOCSPStapling) throws -> TLSClientSettings {
        var settings = try Fixture(version, leaf: chain.leaf, roots: [chain.root]).client
        settings.values.ocspStapling = stapling
        return settings
    }

    private func error(
        _ response: [UInt8]?, _ version: TLSProtocolVersion = .tls13, _ stapling: TLSOCSPStapling = .required,
        leaf: HandmadeCertificate? = nil, replacement: [UInt8]? = nil, _ change: (inout TLSClientSettings) -> Void = { _ in }
    ) throws -> (error: TLSError?, alert: TLSAlert?) {
        var settings = try settings(version, stapling)
        change(&settings)
        let server = try StaplingServer(leaf ?? chain.leaf, chain: [chain.intermediate], response: response)
        server.replacement = replacement
        return try server.error(of: settings)
    }

    @Test(arguments: versions) func aGoodResponseIsAccepted(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf)
        #expect(try error(response, version).error == nil)
        #expect(try error(response, version, .requested).error == nil)
        let modern = try chain.intermediate.response(about: chain.leaf, .init(digest: EVP_sha256()))
        #expect(try error(modern, version).error == nil)
    }

    @Test(arguments: versions, [TLSOCSPStapling.requested, .required])
    func aRevokedCertificateIsRefused(version: TLSProtocolVersion, stapling: TLSOCSPStapling) throws {
        let response = try chain.intermediate.response(about: chain.leaf, .init(status: V_OCSP_CERTSTATUS_REVOKED))
        let (error, alert) = try error(response, version, stapling)
        #expect(error?.code == .certificateRevoked)
        #expect(error?.message == "the certificate of \"Server\" is revoked, according to its OCSP response")
        #expect(alert?.rawValue == 113)
    }

    @Test(arguments: versions) func anUnknownCertificateIsRefused(version: TLSProtocolVersion) throws {
        let response = try chain.intermediate.response(about: chain.leaf, .init(status: V_OCSP_CERTSTATUS_UNKNOWN))
        #expect(try error(response, version).error?.verifyCode == X509_V_ERR_OCSP_CERT_UNKNOWN)
    }

    @Test(arguments: versions) func withoutAResponseTheSettingDecides(version: TLSProtocolVersion) throws {
        #expect(try error(nil, version, .none).error == nil)
        #expect(try error(nil, version, .requested).error == nil)
        let refused = try error(nil, version).error
        #expect(refused?.code == .certificateRejected)
        #expect(refused?.verifyCode == X509_V_ERR_OCSP_VERIFY_NEEDED)
    }

    @Test(arguments: versions, ["status_request", "status_request_v2,status_request"])
    func aCertificateThatMustStapleNeedsAResponse(version: TLSProtocolVersion, features: String) throws {
        let extensions = HandmadeCertificate.server() + [(NID_tlsfeature, features)]
        let leaf = try HandmadeCertificate("Server", extensions, signedBy: chain.intermediate)
        let refused = try error(nil, version, .requested, leaf: leaf).error
        #expect(refused?.verifyCode == X509_V_ERR_OCSP_VERIFY_NEEDED)
        #expect(try error(chain.intermediate.response(about: leaf), version, .requested, leaf: leaf).error == nil)
    }

    @Test(arguments: [-48 ..< -24, 24..<48, nil]) func aResponseMustBeValidNow(hours: Range<Int>?) throws {
        let response = try chain.intermediate.response(about: chain.leaf, .init(hours: hours))
        let refused = try error(response).error
        #expect(refused?.code == .certificateRejected)
        #expect(refused?.message.contains("expired or not yet valid") == true)
    }

    /// By five minutes at both ends of the validity.
    @Test func theClockOfTheResponderMayDiffer() throws {
        let response = try chain.intermediate.response(about: chain.leaf, .init(hours: -10 ..< -8))
        for (seconds, isAccepted) in [(-10 * 3600 - 360, false), (-10 * 3600 - 240, true), (-8 * 3600 + 240, true)] {
            let error = try error(response) { $0.values.rules.verificationTime = Date() + Double(seconds) }.error
            #expect((error == nil) == isAccepted, "\(seconds): \(String(describing: error))")
        }
        let late = try error(response) { $0.values.rules.verificationTime = Date() - 8 * 3600 + 360 }.error
        #expect(late?.message.contains("expired or not yet valid") == true)
    }

    /// The certificate's status may be anywhere in the response.
    @Test(arguments: versions) func theAnswerIsFoundBehindOthers(version: TLSProtocolVersion) throws {
        let other = try HandmadeCertificate("Other", HandmadeCertificate.server(), signedBy: chain.intermediate)
        #expect(try error(chain.intermediate.response(about: chain.leaf, .init(behind: [other])), version).error == nil)
        let revoked = try chain.intermediate.response(
            about: chain.leaf, .init(status: V_OCSP_CERTSTATUS_REVOKED, behind: [other, other]))
        #expect(try error(revoked, version).error?.code == .certificateRevoked)
    }

    @Test func theTimeOfVerificationCountsForResponsesToo() throws {
        let response = try chain.intermediate.response(about: chain.leaf, .init(hours: -10 ..< -8))
        #expect(try error(response).error?.code == .certificateRejected)
        #expect(try error(response) { $0.values.rules.verificationTime = Date() - 9 * 3600 }.error == nil)
    }

    /// Also for the certificate of a delegated responder: one that has expired since then, and one that was
    /// not yet valid.
    @Test func theTimeOfVerificationCountsForDelegates() throws {
        let purpose = [(NID_ext_key_usage, "OCSPSigning")]
        let old = try HandmadeCertificate("Old", purpose, endingIn: -10 * 3600, signedBy: chain.intermediate)
        let new = try HandmadeCertificate("New", purpose, days: 0..<30, signedBy: chain.intermediate)
        for (delegate, isAcceptedThen) in [(old, true), (new, false)] {
            let hours = [-22 ..< -18, -1..<1]
            let responses = try hours.map {
                try chain.intermediate.response(about: chain.leaf, .init(hours: $0, responder: delegate))
            }
            let then = try error(responses[0]) { $0.values.rules.verificationTime = Date() - 20 * 3600 }.error
            let now = try error(responses[1]).error
            #expect((then == nil) == isAcceptedThen && (now == nil) == !isAcceptedThen)
            #expect((then ?? now)?.message.contains("did not sign") == true)
        }
    }

    @Test func aResponseForAnotherCertificateIsRefused() throws {
        let other = try HandmadeCertificate("Other", HandmadeCertificate.server(), signedBy: chain.intermediate)
        let good = try chain.intermediate.response(about: chain.leaf)
        let refused = try error(good, .tls12, replacement: chain.intermediate.response(about: other)).error
        #expect(refused?.message.contains("for other certificates") == true)
    }

    /// The response is for a certificate with the same serial number from another issuer with the same name.
    @Test(arguments: versions) func aResponseForACertificateOfANamesakeIsRefused(version: TLSProtocolVersion) throws {
        let namesake = try HandmadeCertificate("Intermediate", HandmadeCertificate.authority)
        let refused = try error(chain.intermediate.response(about: chain.leaf, .init(issuer: namesake)), version).error
        #expect(refused?.message.contains("did not sign") == true)
    }

    @Test func onlyTheIssuerAndItsDelegatesMaySign() throws {
        let purpose = [(NID_ext_key_usage, "OCSPSigning")]
        let delegate = try HandmadeCertificate("Delegate", purpose, signedBy: chain.intermediate)
        #expect(try error(chain.intermediate.response(about: chain.leaf, .init(responder: delegate))).error == nil)
        for stranger in [
            try HandmadeCertificate("Server", HandmadeCertificate.server(), signedBy: chain.intermediate),
            try HandmadeCertificate("Delegate", purpose, signedBy: chain.root),
            try HandmadeCertificate("Delegate", purpose), try HandmadeCertificate("Intermediate", HandmadeCertificate.authority),
        ] {
            let refused = try error(chain.intermediate.response(about: chain.leaf, .init(responder: stranger))).error
            #expect(refused?.message.contains("did not sign") == true, "\(refused?.message ?? "accepted")")
        }
    }

    /// The response contains only an error: "unauthorized".
    @Test(arguments: versions) func aResponseWithoutAStatusIsRefused(version: TLSProtocolVersion) throws {
        let refused = try error([0x30, 0x03, 0x0A, 0x01, 0x06], version, .requested)
        #expect(refused.error?.verifyCode == X509_V_ERR_OCSP_VERIFY_FAILED)
        #expect(refused.alert?.rawValue == 113)
    }

    /// `BrokenPromiseTests` does the same with TLS 1.3.
    @Test(arguments: [[0], [UInt8](repeating: 0x30, count: 300)]) func bytesThatAreNoAnswerAreRefused(bytes: [UInt8]) throws {
        let good = try chain.intermediate.response(about: chain.leaf)
        let refused = try error(good, .tls12, .requested, replacement: bytes)
        #expect(refused.error?.code == .certificateRejected)
        #expect(refused.error?.verifyCode == X509_V_ERR_OCSP_VERIFY_FAILED)
        #expect(refused.error?.message.contains("an OCSP response that contains no status") == true)
        #expect(refused.alert?.rawValue == 113)
    }

    @Test func aChangedResponseIsRefused() throws {
        var response = try chain.intermediate.response(about: chain.leaf)
        response[response.count - 1] ^= 1
        #expect(try error(response).error?.code == .certificateRejected)
    }
}

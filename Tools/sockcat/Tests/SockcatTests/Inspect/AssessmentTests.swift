import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// The problems that follow from the facts about a server or a file.
@Suite struct AssessmentTests {
    private let authority: DevelopmentAuthority

    init() throws { authority = try DevelopmentAuthority(name: "Development") }

    private func certificate(days: Int = 100, names: [String] = ["localhost"]) throws -> CertificateReport {
        let pem = try authority.issue(.server(names: names, commonName: "localhost"), days: days).certificatePEM
        return CertificateReport(try TLSCertificate(pem: pem), at: Date())
    }

    private func root() throws -> CertificateReport {
        CertificateReport(try TLSCertificate(pem: authority.certificatePEM), at: Date())
    }

    private func codes(_ certificates: [CertificateReport], days: Int = 14, isServer: Bool = true) -> [Problem.Code] {
        Assessment.problems(of: certificates, days: days, at: Date(), isServer: isServer).map(\.code)
    }

    @Test func aGoodCertificateHasNoProblems() throws {
        #expect(try codes([certificate()]).isEmpty)
    }

    @Test(arguments: [(-1, [Problem.Code.expired]), (10, [.expiresSoon]), (20, [])])
    func theEndOfTheValidityMatters(days: Int, expected: [Problem.Code]) throws {
        #expect(try codes([certificate(days: days)]) == expected)
    }

    @Test func aServerNeedsNames() throws {
        #expect(try codes([certificate(names: [])]) == [.noNames])
        #expect(try codes([certificate(names: [])], isServer: false).isEmpty)
    }

    @Test func theOrderOfTheChainMatters() throws {
        #expect(try codes([certificate(), root()]) == [.needlessRoot])
        #expect(try codes([certificate(), certificate(), root()]) == [.chainOrder, .needlessRoot])
    }

    @Test func weakAlgorithmsAreReported() throws {
        var weak = try certificate()
        (weak.keyStrength, weak.signatureAlgorithm) = (80, "sha1WithRSAEncryption")
        #expect(codes([weak]) == [.weakKey, .weakSignature])
    }

    @Test func theStatusFollowsTheMostSeriousProblem() {
        #expect(Assessment.status(of: []) == .ok)
        #expect(Assessment.status(of: [.warning(.oldVersion, "")]) == .ok)
        #expect(Assessment.status(of: [.error(.expiresSoon, "")]) == .expiresSoon)
        #expect(Assessment.status(of: [.error(.expiresSoon, ""), .error(.nameMismatch, "")]) == .untrusted)
    }

    @Test func aFaultThatOpenSSLReportsIsNotRepeated() {
        let fault = Problem.error(.expired, "the certificate of \"a\" expired on 2020-01-01T00:00:00Z")
        let other = Problem.error(.expired, "the certificate of \"b\" expired on 2020-01-01T00:00:00Z")
        #expect(Assessment.merged([fault], [fault, other]) == [fault, other])
    }

    @Test func errorsComeBeforeWarnings() {
        let (warning, error) = (Problem.warning(.noTLS13, "w"), Problem.error(.expiresSoon, "e"))
        #expect(Assessment.merged([warning], [error]) == [error, warning])
    }

    @Test func aMissingIssuerIsReportedOnce() {
        func fault(_ code: Int32) -> PeerTrust.Verdict { .untrusted(reason: "\(code)", code: code, depth: 0) }
        let trust = PeerTrust(chain: [], verdict: fault(20), otherFaults: [fault(21), fault(62)])
        #expect(Assessment.problems(of: trust).map(\.code) == [.unknownIssuer, .nameMismatch])
    }

    @Test func weaknessesOfAServerAreWarnings() {
        var capabilities = CapabilityReport(resumption: .accepted, earlyData: .notAccepted)
        (capabilities.oldestVersion, capabilities.weakestSuite) = ("TLSv1.0", "TLS_RSA_WITH_RC4_128_SHA")
        capabilities.versions = ["TLSv1.3": .notAccepted]
        capabilities.suites = [SuiteReport(kind: SuiteTier.broken.kind, support: .accepted)]
        let problems = Assessment.problems(of: capabilities)
        #expect(problems.map(\.code) == [.oldVersion, .noTLS13, .weakSuite])
        #expect(problems.allSatisfy { $0.severity == .warning })
    }

    @Test func eachSuiteIsListedOnce() {
        let numbers = SuiteTier.all.flatMap { $0.suites.map(\.number) }
        #expect(Set(numbers).count == numbers.count)
    }
}

/// The differences that `--watch` prints.
@Suite struct ReportChangesTests {
    private let old = InspectionReport(target: "a:1", kind: .server, inspectedAt: Date(timeIntervalSince1970: 0), status: .ok)

    @Test func timeIsNotAChange() {
        var new = old
        (new.inspectedAt, new.daysLeft) = (Date(timeIntervalSince1970: 86_400), 3)
        #expect(ReportChanges.lines(from: old, to: new).isEmpty)
    }

    @Test func problemsAppearAndDisappear() {
        var new = old
        new.problems = [.error(.expired, "it expired"), .warning(.noTLS13, "it is old")]
        #expect(ReportChanges.lines(from: old, to: new) == ["new problem: it expired", "new warning: it is old"])
        #expect(ReportChanges.lines(from: new, to: old) == ["resolved: it expired", "resolved: it is old"])
    }

    @Test func aServerThatIsDownIsAChange() {
        var new = old
        (new.status, new.failure) = (.connectFailed, FailureReport(message: "connection refused"))
        #expect(
            ReportChanges.lines(from: old, to: new) == [
                "status changed from ok to connectFailed", "failure changed from unknown to connection refused",
            ])
    }
}

/// The arguments and the list of servers.
@Suite struct InspectionTargetTests {
    @Test func serversAreWrittenInTwoWays() throws {
        let expected = InspectionTarget.server(ServerTarget(endpoint: .host("localhost", port: 443)))
        #expect(try InspectionTarget.targets(["localhost", "443"], nil, serverName: nil) == [expected])
        #expect(try InspectionTarget.targets(["localhost:443"], nil, serverName: nil) == [expected])
    }

    @Test func aListContainsCommentsAndProtocols() throws {
        let text = "# mail\nmail.example:25 smtp\n\nlocalhost 443  # web\n[::1]:993\nunix:/run/a.sock\n"
        let targets = try InspectionTarget.targets(inList: text, named: "list")
        #expect(
            targets == [
                .server(ServerTarget(endpoint: .host("mail.example", port: 25), startTLS: .smtp)),
                .server(ServerTarget(endpoint: .host("localhost", port: 443))),
                .server(ServerTarget(endpoint: .host("::1", port: 993))),
                .server(ServerTarget(endpoint: .unix("/run/a.sock"))),
            ])
    }

    @Test(arguments: ["localhost", "localhost:0", "localhost:443 gopher", "", "localhost 443 smtp imap"])
    func aWrongLineIsAnErrorThatNamesIt(text: String) {
        let failure = #expect(throws: Failure.self) { try InspectionTarget.targets(inList: "\n" + text, named: "list") }
        #expect(failure?.status == .usage)
        if !text.isEmpty { #expect(failure?.message.hasPrefix("line 2 of \"list\"") == true) }
    }

    @Test func aMissingFileIsAnError() {
        let failure = #expect(throws: Failure.self) { try InspectionTarget.targets(["missing.pem"], nil, serverName: nil) }
        #expect(failure?.status == .usage)
    }
}

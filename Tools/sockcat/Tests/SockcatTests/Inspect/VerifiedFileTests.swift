import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat inspect FILE` with `--ca` and `--sni`. `openssl verify` decides in the same way.
@Suite(.timeLimit(.minutes(2))) struct VerifiedFileTests {
    let folder: TestFolder
    let leaf: TLSCertificate

    init() throws {
        folder = try TestFolder()
        let (authority, other) = (try CertificateAuthority(), try CertificateAuthority(name: "Other"))
        try folder.issue(.server(names: ["localhost"]), by: other, to: "stranger")
        try folder.issue(.client(commonName: "ada"), by: authority, to: "client")
        let server = try folder.issue(.server(names: ["localhost", "127.0.0.1"]), by: authority, to: "server")
        leaf = try TLSCertificate(pem: server.certificatePEM)
        try folder.write(server.certificatePEM, to: "leaf.pem")
        let expired = try authority.issue(.server(names: ["localhost"]), validity: .expired)
        try folder.write(expired.certificateChainPEM, to: "expired.pem")
        try folder.write(expired.privateKeyPEM, to: "expired.key")
    }

    private func inspect(_ arguments: String) async throws -> (outcome: SockcatProcess.Outcome, report: InspectionReport) {
        let outcome = try await SockcatProcess.shell("sockcat inspect --json \(arguments)", in: folder)
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        return (outcome, try decoder.decode(InspectionReport.self, from: Data(outcome.output.utf8)))
    }

    @Test(arguments: [
        ("server.pem --ca ca.pem", ExitStatus.success, ""), ("server.pem --ca ca.pem --sni localhost", .success, ""),
        ("server.pem --ca ca.pem --sni 127.0.0.1", .success, ""), ("- --ca ca.pem < server.pem", .success, ""),
        ("server.pem --ca ca.pem --sni other.example", .untrusted, "nameMismatch"),
        ("leaf.pem --ca ca.pem", .untrusted, "unknownIssuer"), ("stranger.pem --ca ca.pem", .untrusted, "unknownIssuer"),
        ("server.pem --sni localhost", .untrusted, "unknownIssuer"), ("expired.pem --ca ca.pem", .untrusted, "expired"),
        ("expired.pem --ca ca.pem --sni other.example", .untrusted, "expired nameMismatch"),
        ("server.pem --ca ca.pem --days 100000", .expiresSoon, "expiresSoon"),
        ("client.pem --ca ca.pem --sni ada", .untrusted, "nameMismatch rejected"),
    ])
    func theChainIsVerified(arguments: String, status: SockcatCommands.ExitStatus, problems: String) async throws {
        let (outcome, report) = try await inspect(arguments)
        #expect(outcome.status == status.rawValue, "\(outcome)")
        let errors = Set(report.problems.filter { $0.severity == .error }.map(\.code.rawValue)).sorted()
        #expect(errors.joined(separator: " ") == problems, "\(report.problems)")
        let isTrusted = status != .untrusted
        #expect(report.chain == ChainReport(isTrusted: isTrusted, purpose: .server))
        let text = try await SockcatProcess.shell("sockcat inspect \(arguments)", in: folder).output
        #expect(text.contains("  trust           \(isTrusted ? "trusted" : "not trusted")\n"), "\(text)")
    }

    /// The messages are those for a server with the same chain.
    @Test(arguments: ["stranger", "server", "expired"]) func theWordsAreThoseForServers(name: String) async throws {
        let server = try await SockcatServer(
            "listen --echo --tls --cert \(name).pem --key \(name).key localhost:0", in: folder)
        let file = try await inspect("\(name).pem --ca ca.pem --sni other.example").report
        let live = try await inspect("localhost:\(server.port) --ca ca.pem --sni other.example --no-probes").report
        #expect(!file.problems.isEmpty && file.problems == live.problems, "\(file.problems) \(live.problems)")
        #expect(file.status == live.status)
        await server.stop()
    }

    @Test func theCertificateOfAClientIsVerifiedForAClient() async throws {
        let (outcome, report) = try await inspect("client.pem --ca ca.pem")
        #expect(outcome.status == 0, "\(outcome)")
        #expect(report.chain == ChainReport(isTrusted: true, purpose: .client))
        let text = try await SockcatProcess.run("inspect client.pem --ca ca.pem", in: folder).output
        #expect(text.contains("  trust           trusted, as the certificate of a client\n"), "\(text)")
    }

    @Test func pinsAreVerified() async throws {
        let pin = PinArgument.text(of: leaf)
        #expect(try await inspect("server.pem --pin \(pin)").outcome.status == 0)
        let (outcome, report) = try await inspect("stranger.pem --pin \(pin)")
        #expect(outcome.status == ExitStatus.untrusted.rawValue)
        #expect(report.problems.map(\.code) == [.pinMismatch] && report.chain == nil)
    }

    /// A pin of a stranger in the file does not count, and one of the root does, although the file lacks it.
    @Test func pinsAreVerifiedInTheChain() async throws {
        let all = try folder.text("server.pem") + folder.text("stranger.pem")
        try folder.write(all, to: "all.pem")
        let stranger = try PinArgument.text(of: TLSCertificate(pem: folder.text("stranger.pem")))
        let (outcome, report) = try await inspect("all.pem --ca ca.pem --sni localhost --pin \(stranger)")
        let errors = report.problems.filter { $0.severity == .error }
        #expect(outcome.status == ExitStatus.untrusted.rawValue && errors.map(\.code) == [.pinMismatch])
        let root = try PinArgument.text(of: TLSCertificate(pem: folder.text("ca.pem")))
        #expect(try await inspect("server.pem --ca ca.pem --pin \(root)").outcome.status == 0)
    }

    @Test func anAuthorityThatCannotBeReadIsAnError() async throws {
        let (outcome, report) = try await inspect("server.pem --ca none.pem")
        #expect(outcome.status == ExitStatus.fileFailed.rawValue)
        #expect(report.failure?.message.contains("none.pem") == true)
    }

    @Test(arguments: ["--starttls smtp", "--no-probes", "--alpn h2", "--cert client.pem", "--tls-version 1.3"])
    func optionsForConnectionsAreErrors(option: String) async throws {
        let outcome = try await SockcatProcess.run("inspect server.pem \(option)", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue)
        #expect(outcome.errors.contains("applies to servers, but \"server.pem\" is a file"), "\(outcome)")
    }
}

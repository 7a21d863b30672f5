import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat inspect --dtls` of `openssl s_server` and `sockcat listen`.
@Suite(.timeLimit(.minutes(3))) struct InspectDatagramTests {
    let folder: TestFolder
    let leaf: TLSCertificate

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        let server = try folder.issue(.server(names: ["localhost", "127.0.0.1"]), by: authority, to: "server")
        leaf = try TLSCertificate(pem: server.certificatePEM)
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
        let expired = try authority.issue(.server(names: ["localhost"]), validity: .expired)
        try folder.write(expired.certificateChainPEM, to: "expired.pem")
        try folder.write(expired.privateKeyPEM, to: "expired.key")
    }

    private func server(_ name: String = "server", _ options: String = "") async throws -> SockcatServer {
        try await SockcatServer(
            "listen --echo --dtls --cert \(name).pem --key \(name).key \(options) 127.0.0.1:0", in: folder)
    }

    private func inspect(_ arguments: String) async throws -> (outcome: SockcatProcess.Outcome, report: InspectionReport) {
        let outcome = try await SockcatProcess.run("inspect --json \(arguments)", in: folder)
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        return (outcome, try decoder.decode(InspectionReport.self, from: Data(outcome.output.utf8)))
    }

    @Test func aServerOfOpenSSLIsDescribed() async throws {
        let server = try await OpenSSLServer("-dtls1_2 -mtu 1200", in: folder)
        let (outcome, report) = try await inspect("--dtls --ca ca.pem 127.0.0.1 \(server.port)")
        try await server.stop()
        #expect(outcome.status == 0 && report.failure == nil, "\(outcome)")
        #expect(report.target == "127.0.0.1:\(server.port) (dtls)" && report.address == "127.0.0.1:\(server.port)")
        #expect(report.session?.version == "DTLSv1.2" && report.session?.isTrusted == true)
        #expect(report.certificates.first?.pin == PinArgument.text(of: leaf))
        #expect(report.capabilities?.resumption == .accepted && report.capabilities?.versions.isEmpty == true)
        #expect(report.problems.isEmpty, "\(report.problems)")
    }

    @Test func theTextContainsOnlyWhatWasTested() async throws {
        let server = try await server()
        let outcome = try await SockcatProcess.run("inspect --dtls --ca ca.pem 127.0.0.1:\(server.port)", in: folder)
        await server.stop()
        #expect(outcome.status == 0, "\(outcome)")
        for text in ["  negotiated      DTLSv1.2, ", "  trust           trusted\n", "  resumption      "] {
            #expect(outcome.output.contains(text), "\(outcome.output)")
        }
        for text in ["oldest version", "early data", "weakest suite", "warning:"] { #expect(!outcome.output.contains(text)) }
    }

    @Test func anExpiredCertificateIsReported() async throws {
        let server = try await server("expired")
        let (outcome, report) = try await inspect("--dtls --ca ca.pem --sni localhost 127.0.0.1:\(server.port)")
        await server.stop()
        #expect(outcome.status == ExitStatus.untrusted.rawValue, "\(outcome)")
        #expect(report.problems.map(\.code) == [.expired])
    }

    @Test func theServersDecisionAboutTheClientIsReported() async throws {
        let server = try await server("server", "--client-ca ca.pem")
        let arguments = "--dtls --ca ca.pem 127.0.0.1:\(server.port)"
        let without = try await inspect(arguments)
        let with = try await inspect("--cert ada.pem --key ada.key \(arguments)")
        let distrusting = try await inspect("--cert ada.pem --key ada.key --dtls 127.0.0.1:\(server.port)")
        await server.stop()
        #expect(without.outcome.status == ExitStatus.handshakeFailed.rawValue, "\(without.outcome)")
        #expect(without.report.clientCertificate?.request == .required)
        #expect(with.outcome.status == 0, "\(with.outcome)")
        #expect(with.report.clientCertificate?.presentation == .accepted)
        #expect(distrusting.report.clientCertificate?.presentation == .withheld, "\(distrusting.outcome)")
    }

    @Test func recordsAndListsOfServersWork() async throws {
        let server = try await server()
        let digest = Hexadecimal.text(leaf.publicKeySHA256)
        let matching = try await inspect("--dtls --tlsa '3 1 1 \(digest)' --sni localhost 127.0.0.1:\(server.port)")
        try folder.write("127.0.0.1:\(server.port) dtls\n", to: "servers.txt")
        let listed = try await inspect("--hosts servers.txt --ca ca.pem")
        await server.stop()
        #expect(matching.outcome.status == 0 && matching.report.session?.isTrusted == true, "\(matching.outcome)")
        #expect(listed.outcome.status == 0 && listed.report.session?.version == "DTLSv1.2", "\(listed.outcome)")
    }

    @Test func aClosedPortIsAFailure() async throws {
        let port = try DatagramListener(port: 0, interface: "127.0.0.1").localAddresses.first?.port ?? 0
        let (outcome, report) = try await inspect("--dtls --timeout 60s 127.0.0.1:\(port)")
        #expect(outcome.status == ExitStatus.connectFailed.rawValue, "\(outcome)")
        #expect(report.failure != nil && report.capabilities == nil)
    }

    @Test(arguments: [
        ("--dtls --starttls smtp localhost:1", "--starttls upgrades TCP connections"), ("--dtls --hosts x", "HOST:PORT dtls"),
        ("--dtls server.pem", "--dtls applies to servers"), ("--dtls unix:socket", "not a UDP address"),
    ]) func optionsWithoutEffectAreErrors(arguments: String, message: String) async throws {
        let outcome = try await SockcatProcess.run("inspect \(arguments)", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue, "\(outcome)")
        #expect(outcome.errors.contains(message), "\(outcome)")
    }
}

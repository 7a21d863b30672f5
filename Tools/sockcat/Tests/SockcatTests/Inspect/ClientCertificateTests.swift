import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// The client's certificate: to which servers it is sent, and what the servers decide about it.
@Suite(.timeLimit(.minutes(5))) struct ClientCertificateTests {
    let folder: TestFolder
    private let serverPin: String

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        let server = try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        serverPin = Hexadecimal.text(try TLSCertificate(pem: server.certificatePEM).publicKeySHA256)
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
        let stranger = try CertificateAuthority(name: "Stranger").issue(.client(commonName: "eve"))
        try folder.write(stranger.certificateChainPEM, to: "eve.pem")
        try folder.write(stranger.privateKeyPEM, to: "eve.key")
    }

    private struct Result {
        var status: Int32
        var report: InspectionReport
        var text: String
        /// What the server printed, which includes the subjects of the client's certificates.
        var server: String
    }

    private static let requiring = "-Verify 1 -verify_return_error -CAfile ca.pem"

    private func inspect(_ options: String, server arguments: String) async throws -> Result {
        let server = try await OpenSSLServer(arguments, in: folder)
        let json = try await SockcatProcess.run("inspect --json \(options) localhost \(server.port)", in: folder)
        let output = try await server.stop()
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        let report = try decoder.decode(InspectionReport.self, from: Data(json.output.utf8))
        let text = ReportText(report: report, style: .plain).full.text
        return Result(status: json.status, report: report, text: text, server: output)
    }

    // MARK: - The server's decision

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aCertificateThatTheServerTrustsIsAccepted(version: String) async throws {
        let result = try await inspect("--ca ca.pem --cert ada.pem --key ada.key", server: "\(Self.requiring) \(version)")
        #expect(result.status == 0)
        #expect(result.report.clientCertificate?.request == .requested)
        #expect(result.report.clientCertificate?.presentation == .accepted)
        #expect(result.report.clientCertificate?.authorities == ["CN=AsyncSockets Test Root"])
        #expect(result.text.contains("use of --cert   accepted by the server"))
        #expect(result.server.contains("ada"))
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aCertificateThatTheServerRefusesIsAFailure(version: String) async throws {
        let result = try await inspect("--ca ca.pem --cert eve.pem --key eve.key", server: "\(Self.requiring) \(version)")
        #expect(result.status == ExitStatus.handshakeFailed.rawValue)
        #expect(result.report.clientCertificate?.presentation == .refused)
        #expect(result.report.failure?.message.contains("unknown_ca") == true)
        #expect(result.text.contains("refused by the server") && !result.text.contains("accepted by"))
        #expect(result.report.certificates.count == 2)
    }

    /// The server's certificate can be monitored without a client certificate.
    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aRequiredCertificateIsReportedWithTheChain(version: String) async throws {
        let result = try await inspect("--ca ca.pem --days 100000", server: "\(Self.requiring) \(version)")
        #expect(result.status == ExitStatus.handshakeFailed.rawValue)
        #expect(result.report.clientCertificate?.request == .required)
        #expect(result.report.clientCertificate?.presentation == nil)
        #expect(result.report.certificates.map(\.commonName) == ["localhost", "AsyncSockets Test Intermediate"])
        #expect(result.report.problems.contains { $0.code == .expiresSoon })
        #expect(result.report.address != nil)
        #expect(result.text.contains("client cert     required, from CN=AsyncSockets Test Root\n"), "\(result.text)")
        #expect(result.text.contains("  failed: "))
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func anOptionalCertificateIsReported(version: String) async throws {
        let result = try await inspect("--no-probes --ca ca.pem", server: "-verify 1 -CAfile ca.pem \(version)")
        #expect(result.status == 0)
        #expect(result.report.clientCertificate?.request == .optional)
        #expect(result.text.contains("client cert     requested, but not required"))
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aServerThatRequestsNoCertificateGetsNone(version: String) async throws {
        let result = try await inspect("--no-probes --ca ca.pem --cert ada.pem --key ada.key", server: version)
        #expect(result.status == 0)
        #expect(result.report.clientCertificate == ClientCertificateReport(request: .notRequested, presentation: .notRequested))
    }

    /// A server that sends neither a session nor data confirms no certificate.
    @Test func aServerThatSendsNothingHasNotAccepted() async throws {
        let server = "\(Self.requiring) -tls1_3 -num_tickets 0 -no_ticket -no_cache"
        let accepted = try await inspect("--no-probes --ca ca.pem --cert ada.pem --key ada.key", server: server)
        #expect(accepted.report.clientCertificate?.presentation == .notConfirmed)
        #expect(accepted.report.problems.map(\.code) == [.unconfirmed])
        #expect(accepted.text.contains("not confirmed by the server") && !accepted.text.contains("accepted"))
        let refused = try await inspect("--no-probes --ca ca.pem --cert eve.pem --key eve.key", server: server)
        #expect(refused.status == ExitStatus.handshakeFailed.rawValue)
        #expect(refused.report.clientCertificate?.presentation == .refused)
    }

    /// With STARTTLS, the reply to a harmless command is a confirmation too, and a close is a refusal.
    @Test(arguments: [true, false]) func theReplyToACommandIsAConfirmation(replies: Bool) async throws {
        var settings = TLSServerSettings.server(
            identity: try TLSIdentity(certificateFile: folder.path("server.pem"), privateKeyFile: folder.path("server.key")))
        settings.sessionTickets = .none
        settings.clients = .certificates(.required)
        settings.trustRoots = .file(path: folder.path("ca.pem"))
        let server = try CountingServer { [settings] _ in
            .serve { socket in
                try await socket.acceptStartTLS(as: .smtp(greeting: "test"), settings: settings)
                #expect(try await socket.readLine() == "NOOP")
                if replies { try await socket.writeLine("250 OK") }
                try await socket.close()
            }
        }
        let outcome = try await SockcatProcess.run(
            "inspect --no-probes --ca ca.pem --cert ada.pem --key ada.key --starttls smtp localhost \(server.port)", in: folder)
        await server.stop()
        #expect(outcome.status == (replies ? ExitStatus.success : .handshakeFailed).rawValue, "\(outcome)")
        #expect(outcome.output.contains("accepted by the server") == replies)
        #expect(outcome.output.contains("refused by the server") == !replies)
    }

    // MARK: - The servers that get the certificate

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func anUntrustedServerGetsNoCertificate(version: String) async throws {
        let options = "-verify 1 -CAfile ca.pem \(version)"
        let otherName = "--ca ca.pem --sni other.example"
        let otherPin = "--ca ca.pem --pin \(String(repeating: "ab", count: 32))"
        for trust in ["", otherName, otherPin] {
            let result = try await inspect("\(trust) --cert ada.pem --key ada.key", server: options)
            #expect(!result.server.contains("ada"), "\(trust): \(result.server)")
            #expect(result.status == ExitStatus.untrusted.rawValue)
            #expect(result.report.clientCertificate?.presentation == .withheld)
            #expect(result.report.clientCertificate?.request == .optional)
            #expect(result.report.problems.contains { $0.code == .withheld && $0.severity == .warning })
            #expect(result.text.contains("not sent, because the server is not trusted"))
        }
    }

    /// The advice is not to pass a certificate, because one was passed.
    @Test func aRequiringServerThatIsNotTrustedIsExplained() async throws {
        let result = try await inspect("--no-probes --cert ada.pem --key ada.key", server: "\(Self.requiring) -tls1_3")
        #expect(result.status == ExitStatus.handshakeFailed.rawValue)
        #expect(result.report.failure?.advice?.contains("sent only if the server is trusted") == true)
        #expect(!result.server.contains("ada"))
    }

    /// A pin of the server's own key identifies the server. A pin of another key in an untrusted chain does
    /// not, because any server can send the certificate of that key.
    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aServerWithAPinnedKeyGetsTheCertificate(version: String) async throws {
        let options = "-verify 1 -CAfile ca.pem \(version)"
        let pinned = try await inspect("--no-probes --pin \(serverPin) --cert ada.pem --key ada.key", server: options)
        #expect(pinned.server.contains("ada"))
        #expect(pinned.report.clientCertificate?.presentation == .accepted)
        let intermediate = try #require(try TLSCertificate.certificates(file: folder.path("server.pem")).last)
        let pin = Hexadecimal.text(intermediate.publicKeySHA256)
        let other = try await inspect("--no-probes --pin \(pin) --cert ada.pem --key ada.key", server: options)
        #expect(!other.server.contains("ada"))
        #expect(other.report.clientCertificate?.presentation == .withheld)
    }

    // MARK: - Other commands

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func connectReportsARefusal(version: String) async throws {
        let server = try await OpenSSLServer("\(Self.requiring) \(version)", in: folder)
        let options = "--tls --ca ca.pem --cert eve.pem --key eve.key localhost \(server.port)"
        let outcome = try await SockcatProcess.run("connect \(options)", input: "hello\n", in: folder)
        try await server.stop()
        #expect(outcome.status == ExitStatus.handshakeFailed.rawValue, "\(outcome)")
        #expect(outcome.errors.contains("unknown_ca"))
    }
}

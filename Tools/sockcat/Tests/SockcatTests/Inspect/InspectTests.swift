import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat inspect` against real servers.
@Suite(.timeLimit(.minutes(2))) struct InspectTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost", "127.0.0.1"]), by: authority, to: "server")
        let expired = try authority.issue(.server(names: ["localhost"]), validity: .expired)
        try folder.write(expired.certificateChainPEM, to: "expired.pem")
        try folder.write(expired.privateKeyPEM, to: "expired.key")
        let soon = try authority.issue(.server(names: ["localhost"]), validity: .endsSoon)
        try folder.write(soon.certificateChainPEM, to: "soon.pem")
        try folder.write(soon.privateKeyPEM, to: "soon.key")
    }

    private func server(_ name: String = "server") async throws -> SockcatServer {
        try await SockcatServer("listen --echo --tls --cert \(name).pem --key \(name).key localhost:0", in: folder)
    }

    private func inspect(_ arguments: String) async throws -> SockcatProcess.Outcome {
        try await SockcatProcess.run("inspect --ca ca.pem \(arguments)", in: folder)
    }

    private func reports(_ arguments: String) async throws -> [InspectionReport] {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        return try await inspect("--json \(arguments)").output.split(separator: "\n").map {
            try decoder.decode(InspectionReport.self, from: Data($0.utf8))
        }
    }

    @Test func aGoodServerIsDescribed() async throws {
        let server = try await server()
        let outcome = try await inspect("localhost \(server.port)")
        await server.stop()
        #expect(outcome.status == 0)
        for text in ["names           localhost, 127.0.0.1", "key             ECDSA P-256", "sha256//", "trusted", "TLSv1.3"] {
            #expect(outcome.output.contains(text), "\(outcome.output)")
        }
        #expect(!outcome.output.contains("problem"))
        #expect(!outcome.output.contains("\u{1B}"))
    }

    @Test(arguments: [
        ("expired", SockcatCommands.ExitStatus.untrusted, Problem.Code.expired), ("soon", .expiresSoon, .expiresSoon),
    ])
    func theExitCodeStatesTheProblem(name: String, status: SockcatCommands.ExitStatus, code: Problem.Code) async throws {
        let server = try await server(name)
        let outcome = try await inspect("--no-probes localhost \(server.port)")
        let report = try #require(await reports("--no-probes localhost \(server.port)").first)
        await server.stop()
        #expect(outcome.status == status.rawValue)
        #expect(report.problems.map(\.code) == [code])
        #expect(report.certificates.count == 2)
        #expect(outcome.output.contains("problem: the certificate of \"localhost\" expire"))
    }

    @Test func aWrongNameAndAnUnknownIssuerAreBothReported() async throws {
        let server = try await server()
        let outcome = try await SockcatProcess.run(
            "inspect --no-probes --json --sni other.example localhost \(server.port)", in: folder)
        await server.stop()
        #expect(outcome.status == ExitStatus.untrusted.rawValue)
        #expect(outcome.output.contains("\"code\":\"nameMismatch\"") && outcome.output.contains("\"code\":\"unknownIssuer\""))
    }

    @Test func aPinIsCopiedAndChecked() async throws {
        let server = try await server()
        let pin = try #require(await reports("--no-probes localhost \(server.port)").first?.certificates.first?.pin)
        let other = try #require(await reports("ca.pem").first?.certificates.first?.pin)
        let right = try await inspect("--no-probes --pin \(pin) localhost \(server.port)")
        let root = try await inspect("--no-probes --pin \(other) localhost \(server.port)")
        let wrong = try await inspect("--no-probes --pin \(String(repeating: "ab", count: 32)) localhost \(server.port)")
        await server.stop()
        #expect(right.status == 0)
        #expect(root.status == 0, "a root that is not sent may be pinned")
        #expect(wrong.status == ExitStatus.untrusted.rawValue)
        #expect(wrong.output.contains("no certificate in the server's chain has a key that matches --pin"))
    }

    @Test func oldVersionsAndWeakSuitesAreFound() async throws {
        let server = try await OpenSSLServer("-www -min_protocol TLSv1 -cipher ALL:@SECLEVEL=0", in: folder)
        let report = try #require(await reports("localhost \(server.port)").first)
        try await server.stop()
        let capabilities = try #require(report.capabilities)
        #expect(capabilities.oldestVersion == "TLSv1.0")
        #expect(capabilities.weakestSuite?.contains("anon") == true)
        #expect(capabilities.versions.values.allSatisfy { $0 == .accepted })
        #expect(capabilities.resumption == .accepted)
        #expect(Set(report.problems.map(\.code)) == [.oldVersion, .weakSuite])
        #expect(report.status == .ok)
    }

    /// The limits apply to the session, and not to what the server is tested for.
    @Test func limitsDoNotChangeWhatAServerAccepts() async throws {
        let server = try await OpenSSLServer("-www", in: folder)
        let report = try #require(await reports("--tls-version 1.2 localhost \(server.port)").first)
        let suite = "TLS_CHACHA20_POLY1305_SHA256"
        let other = try #require(await reports("--no-probes --cipher-suite \(suite) localhost \(server.port)").first)
        try await server.stop()
        #expect(report.session?.version == "TLSv1.2" && report.capabilities?.versions["TLSv1.3"] == .accepted)
        #expect(!report.problems.contains { $0.code == .noTLS13 }, "\(report.problems)")
        #expect(other.session?.version == "TLSv1.3" && other.session?.cipherSuite == suite)
    }

    @Test func aServerWithoutTLS12IsDescribedToo() async throws {
        let server = try await OpenSSLServer("-www -tls1_1 -cipher ALL:@SECLEVEL=0", in: folder)
        let outcome = try await inspect("localhost \(server.port)")
        let report = try #require(await reports("localhost \(server.port)").first)
        try await server.stop()
        #expect(outcome.status == ExitStatus.handshakeFailed.rawValue)
        #expect(report.capabilities?.oldestVersion == "TLSv1.1")
        #expect(report.capabilities?.versions["TLSv1.2"] == .notAccepted)
    }

    @Test func earlyDataAndStaplingAreReported() async throws {
        let server = try await OpenSSLServer("-early_data -max_early_data 4096", in: folder)
        let report = try #require(await reports("localhost \(server.port)").first)
        try await server.stop()
        #expect(report.capabilities?.earlyDataBytes == 4096)
        #expect(report.session?.stapling == .notSent)
    }

    @Test(arguments: [("V", "", SessionReport.Stapling.good, [Problem.Code]()), ("R", "261127000000Z", .rejected, [.revoked])])
    func theStapledResponseIsReported(
        status: String, revoked: String, stapling: SessionReport.Stapling, problems: [Problem.Code]
    ) async throws {
        let made = try await SockcatProcess.shell(
            """
            sockcat certificate authority --force && sockcat certificate server localhost --force &&
            cp localhost.pem server.pem && cp localhost-key.pem server.key &&
            serial=$(openssl x509 -in server.pem -noout -serial | cut -d= -f2) &&
            printf '%s\t491231235959Z\t%s\t%s\tunknown\t/CN=localhost\n' \(status) '\(revoked)' $serial > index &&
            openssl ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca-key.pem -issuer ca.pem -cert server.pem \
            -ndays 3 -respout response
            """, in: folder)
        #expect(made.status == 0, "\(made.errors)")
        let server = try await OpenSSLServer("-www -status_file response", in: folder)
        let report = try #require(await reports("--no-probes localhost \(server.port)").first)
        let unknown = try await SockcatProcess.run("inspect --no-probes --json localhost \(server.port)", in: folder)
        try await server.stop()
        #expect(report.session?.stapling == stapling)
        #expect(report.session?.isTrusted == problems.isEmpty)
        #expect(report.problems.map(\.code) == problems)
        #expect(unknown.output.contains("\"stapling\":\"unchecked\""))
    }

    @Test func aServerWithoutTicketsDoesNotResume() async throws {
        let server = try await OpenSSLServer("-www -num_tickets 0 -no_ticket -no_cache", in: folder)
        let report = try #require(await reports("localhost \(server.port)").first)
        try await server.stop()
        #expect(report.capabilities?.resumption == .notAccepted)
    }

    @Test(arguments: ["smtp", "imap", "postgres"]) func aServerIsInspectedAfterSTARTTLS(name: String) async throws {
        let server = try await SockcatServer(
            "listen --echo --starttls \(name) --cert server.pem --key server.key localhost:0", in: folder)
        let report = try #require(await reports("--starttls \(name) localhost \(server.port)").first)
        await server.stop()
        #expect(report.status == .ok && report.session?.isTrusted == true)
        #expect(report.capabilities?.versions["TLSv1.0"] == .notAccepted)
        #expect(report.capabilities?.oldestVersion == "TLSv1.2")
        #expect(report.capabilities?.weakestSuite == nil)
        #expect(report.capabilities?.suites.last == SuiteReport(kind: SuiteTier.aead.kind, support: .accepted))
    }

    @Test func failuresHaveDistinctExitCodes() async throws {
        let plaintext = try await SockcatServer("listen --echo localhost:0", in: folder)
        let silent = try await SockcatServer("listen --keep-open localhost:0", in: folder)
        let notTLS = try await inspect("localhost \(plaintext.port)")
        let timeout = try await inspect("--timeout 300ms localhost \(silent.port)")
        await plaintext.stop()
        await silent.stop()
        let refused = try await inspect("localhost \(plaintext.port)")
        #expect(notTLS.status == ExitStatus.handshakeFailed.rawValue, "\(notTLS.output)")
        #expect(timeout.status == ExitStatus.timedOut.rawValue, "\(timeout.output)")
        #expect(refused.status == ExitStatus.connectFailed.rawValue)
        #expect(refused.output.contains("hint: check that a server is listening on this port"))
    }

    @Test func oneFailingHostDoesNotStopTheOthers() async throws {
        let (server, expired) = (try await server(), try await server("expired"))
        try folder.write(
            "localhost:\(server.port)\nlocalhost:1 # refused\nlocalhost \(expired.port)\n", to: "hosts")
        let reports = try await reports("--no-probes --parallel 2 --hosts hosts")
        let quiet = try await inspect("--no-probes --quiet --hosts hosts")
        await server.stop()
        await expired.stop()
        #expect(reports.map(\.status) == [.ok, .connectFailed, .untrusted])
        #expect(quiet.status == ExitStatus.connectFailed.rawValue)
        #expect(quiet.output.split(separator: "\n").count == 2)
    }

    @Test func theKeysOfTheJSONAreSortedAndStable() async throws {
        let outcome = try await SockcatProcess.run("inspect --json soon.pem", in: folder)
        let object = try #require(JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: Any])
        #expect(
            object.keys.sorted() == ["certificates", "daysLeft", "inspectedAt", "kind", "problems", "status", "target"])
        let certificate = try #require((object["certificates"] as? [[String: Any]])?.first)
        #expect(
            certificate.keys.sorted() == [
                "commonName", "daysLeft", "fingerprint", "isAuthority", "issuer", "key", "keyBits", "keyStrength", "names",
                "notAfter", "notBefore", "pin", "serialNumber", "signatureAlgorithm", "subject",
            ])
        #expect((certificate["notAfter"] as? String)?.hasSuffix("Z") == true)
    }

    @Test func filesOfAllKindsAreRead() async throws {
        try folder.write("secret\n", to: "passphrase")
        let made = try await SockcatProcess.shell(
            """
            openssl x509 -in server.pem -outform der -out server.der &&
            openssl pkcs12 -export -in server.pem -inkey server.key -passout file:passphrase -out server.p12
            """, in: folder)
        #expect(made.status == 0)
        let reports = try await reports("server.pem server.der server.p12 --passphrase-file passphrase")
        #expect(Set(reports.compactMap(\.certificates.first?.fingerprint)).count == 1)
        #expect(reports.map(\.certificates.count) == [2, 1, 2])
        let wrong = try await inspect("passphrase")
        #expect(wrong.status == ExitStatus.fileFailed.rawValue)
        #expect(wrong.output.contains("hint: pass a file with a certificate in PEM, DER or PKCS #12 form"))
    }

    @Test func watchingPrintsOnlyChanges() async throws {
        try folder.write(try folder.text("server.pem"), to: "watched.pem")
        let child = try ChildProcess(
            shell: "cd \(folder.path); exec \(SockcatProcess.path) inspect --watch 20ms watched.pem", environment: [:])
        let lines = LineReader(child.output)
        #expect(try await lines.next() == "watched.pem")
        while let line = try await lines.next(),
            !line.contains("CN=AsyncSockets Test Intermediate") || !line.contains("certificate")
        {}
        // The rest of the first report, until the last line of the second certificate.
        while let line = try await lines.next(), !line.contains(" pin ") {}
        try FileManager.default.removeItem(atPath: folder.path("watched.pem"))
        #expect(try await lines.next()?.contains(" watched.pem: status changed from ok to fileFailed") == true)
        child.terminate()
        #expect(await child.wait() == ExitStatus.terminated.rawValue)
    }
}

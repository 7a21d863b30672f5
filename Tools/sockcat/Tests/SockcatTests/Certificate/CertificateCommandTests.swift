import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat certificate`, whose files are verified by `openssl`.
@Suite(.timeLimit(.minutes(1))) struct CertificateCommandTests {
    let folder: TestFolder

    init() throws { folder = try TestFolder() }

    private func run(_ arguments: String) async throws -> SockcatProcess.Outcome {
        try await SockcatProcess.run("certificate \(arguments)", in: folder)
    }

    private func succeed(_ arguments: String) async throws {
        let outcome = try await run(arguments)
        #expect(outcome.status == 0, "\(outcome.errors)")
    }

    private func openssl(_ arguments: String) async throws -> SockcatProcess.Outcome {
        try await SockcatProcess.shell("openssl \(arguments) 2>&1", in: folder)
    }

    @Test func serverAndClientCertificatesAreValid() async throws {
        try await succeed("authority")
        try await succeed("server localhost 127.0.0.1 ::1")
        try await succeed("client ada --email ada@example.org --key-type rsa2048")
        let server = try await openssl("verify -x509_strict -purpose sslserver -CAfile ca.pem -verify_ip ::1 localhost.pem")
        let client = try await openssl(
            "verify -x509_strict -purpose sslclient -CAfile ca.pem -verify_email ada@example.org ada.pem")
        #expect(server.status == 0, "\(server.output)")
        #expect(client.status == 0, "\(client.output)")
        _ = try TLSIdentity(certificateFile: folder.path("ada.pem"), privateKeyFile: folder.path("ada-key.pem"))
    }

    @Test func onlyTheOwnerCanReadAKey() async throws {
        try await succeed("authority")
        try await succeed("server localhost --p12 --passphrase-file ca.pem")
        for name in ["ca-key.pem", "localhost-key.pem", "localhost.p12"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: folder.path(name))
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
        }
    }

    @Test func existingFilesAreReplacedOnlyOnRequest() async throws {
        try await succeed("authority")
        let first = try folder.text("ca.pem")
        let refused = try await run("authority")
        #expect(refused.status == ExitStatus.fileFailed.rawValue)
        #expect(refused.errors.contains("hint: pass --force to replace it"))
        #expect(try folder.text("ca.pem") == first)
        try await succeed("authority --force")
        #expect(try folder.text("ca.pem") != first)
    }

    @Test func aRequestIsSigned() async throws {
        try await succeed("authority --directory authority")
        try await succeed("request www.example.org example.org")
        let request = try await openssl("req -in www.example.org.csr -noout -verify -text")
        #expect(request.status == 0 && request.output.contains("DNS:www.example.org, DNS:example.org"))
        try await succeed("sign www.example.org.csr --authority authority --days 30")
        let verified = try await openssl("verify -CAfile authority/ca.pem -verify_hostname example.org www.example.org.pem")
        #expect(verified.status == 0, "\(verified.output)")
        _ = try TLSIdentity(
            certificateFile: folder.path("www.example.org.pem"), privateKeyFile: folder.path("www.example.org-key.pem"))
    }

    @Test func aPKCS12FileContainsTheChain() async throws {
        try folder.write("secret\n", to: "passphrase")
        try await succeed("authority")
        try await succeed("client ada")
        try await succeed("pkcs12 ada.pem ada-key.pem --add ca.pem --passphrase-file passphrase")
        let listing = try await openssl("pkcs12 -in ada.p12 -passin pass:secret -nodes")
        #expect(listing.output.components(separatedBy: "BEGIN CERTIFICATE").count == 3)
        #expect(try TLSIdentity(pkcs12File: folder.path("ada.p12"), passphrase: "secret").certificateChain.count == 1)
    }

    @Test func anExpiredCertificateCanBeIssued() async throws {
        try await succeed("server old.example --self-signed --days -1")
        let certificate = try #require(TLSCertificate.certificates(file: folder.path("old.example.pem")).first)
        #expect(certificate.notAfter < Date() && certificate.subject == certificate.issuer)
    }

    @Test(arguments: [
        ("server localhost", SockcatCommands.ExitStatus.fileFailed, "hint: create it with \"sockcat certificate authority"),
        ("server bücher.example --self-signed", .usage, "hint: write international names as A-labels"),
        ("server localhost --self-signed --days 99999", .usage, "--days must be from"),
        ("server localhost --self-signed --days 0", .usage, "--days must not be 0"),
        ("server 'not a name' --self-signed", .usage, "\"not a name\" is neither a DNS name nor an IP address"),
        ("request 1.2.3", .usage, "\"1.2.3\" is neither a DNS name nor an IP address"),
        ("request ada --email ada@example.org", .usage, "--email requires --client"),
        ("sign missing.csr", .fileFailed, "does not contain an authority"),
    ])
    func mistakesAreExplained(arguments: String, status: SockcatCommands.ExitStatus, text: String) async throws {
        let outcome = try await run(arguments)
        #expect(outcome.status == status.rawValue)
        #expect(outcome.errors.contains(text), "\(outcome.errors)")
    }

    @Test(arguments: [
        "localhost", "a_b.example", "*.example", "xn--bcher-kva.example", "1.2.3.4", "::1", "1a.example", "a.x1",
        String(repeating: "a", count: 63),
    ]) func namesOfServersAreCertified(name: String) throws {
        try CertificateName.validate([name])
    }

    @Test(arguments: [
        "", ".", "a..b", "a.", "*", "*.*.a", "a.*", "a*.example", "-a", "a-", "1.2.3", "1.2.3.4.5", "a b", "a\r\nb", "[::1]",
        "bücher.example", "a.example:443", String(repeating: "a", count: 64), String(repeating: "a.", count: 127) + "a",
    ]) func otherNamesAreNotCertified(name: String) {
        #expect(throws: Failure.self) { try CertificateName.validate([name]) }
    }

    /// Whoever signs a request sees the names and the key in it.
    @Test func whatIsSignedIsShown() async throws {
        try await succeed("authority")
        try await succeed("request www.example.org example.org --key-type rsa2048")
        let outcome = try await run("sign www.example.org.csr")
        #expect(outcome.status == 0)
        let certificate = try #require(TLSCertificate.certificates(file: folder.path("www.example.org.pem")).first)
        for line in [
            "certificate of a server: CN=www.example.org", "name: www.example.org", "name: example.org",
            "key: RSA 2048 bits, \(PinArgument.text(of: certificate))", "valid until ",
        ] {
            #expect("\n\(outcome.errors)".contains("\n\(line)"), "\(outcome.errors)")
        }
    }

    /// The author of a request chooses its names, and an address that a client's certificate contains.
    @Test func whatAnotherRequestsIsShownOrRejected() async throws {
        try await succeed("authority")
        let made = try await openssl(
            "req -new -newkey rsa:2048 -nodes -keyout k.pem -subj /CN=ada -addext subjectAltName=email:eve@example.org -out ada.csr"
        )
        #expect(made.status == 0, "\(made.output)")
        let client = try await run("sign --client ada.csr")
        #expect(client.status == 0 && client.errors.contains("\nemail: eve@example.org\n"), "\(client.errors)")
        for name in ["a b", "a.example, b.example", "1.2.3"] {
            try folder.write("[q]\nsubjectAltName=@n\n[n]\nDNS.1=\"\(name)\"\n[req]\ndistinguished_name=d\n[d]\n", to: "q.cnf")
            let made = try await openssl(
                "req -new -newkey rsa:2048 -nodes -keyout k.pem -subj /CN=x -config q.cnf -reqexts q -out odd.csr")
            #expect(made.status == 0, "\(made.output)")
            let server = try await run("sign odd.csr")
            #expect(server.status == SockcatCommands.ExitStatus.usage.rawValue, "\(server.errors)")
            #expect(server.errors.contains("\"\(name)\" is neither a DNS name nor an IP address"), "\(server.errors)")
        }
    }

    @Test(arguments: [("*.example.org", "_.example.org"), ("::1", "__1"), ("-rf", "_rf")])
    func fileNamesAreSafe(name: String, expected: String) {
        #expect(OutputFiles.baseName(for: name) == expected)
    }
}

import AsyncSocketsTesting
import Foundation
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct CertificateAuthorityTests {
    let authority: CertificateAuthority
    let directory: TemporaryDirectory

    init() throws {
        try self.init(authority: CertificateAuthority())
    }

    private init(authority: CertificateAuthority) throws {
        self.authority = authority
        directory = try TemporaryDirectory()
    }

    /// Runs `openssl verify` with the root as the only trusted certificate and the rest of the chain as
    /// untrusted.
    private func verify(_ issued: IssuedCertificate, _ name: String, purpose: String = "sslserver") throws
        -> OpenSSLProgram.Answer
    {
        let root = directory.path + "/root-for-\(issued.serialNumber).pem"
        try authority.rootPEM.write(toFile: root, atomically: true, encoding: .utf8)
        let chain = try issued.write(to: directory.path).certificate
        let check = name.contains(":") || name.first?.isNumber == true ? "-verify_ip" : "-verify_hostname"
        return try OpenSSLProgram.run(
            "verify", "-x509_strict", "-purpose", purpose, "-CAfile", root, "-untrusted", chain, check, name, chain)
    }

    private func text(_ issued: IssuedCertificate) throws -> String {
        let path = try issued.write(to: directory.path).certificate
        return try OpenSSLProgram.run("x509", "-noout", "-text", "-in", path).text
    }

    @Test(arguments: ["localhost", "127.0.0.1", "::1", "mail.example.org"])
    func serverCertificateIsValidForEachOfItsNames(_ name: String) throws {
        let issued = try authority.issue(.server(names: ["localhost", "127.0.0.1", "::1", "mail.example.org"]))
        let answer = try verify(issued, name)
        #expect(answer.succeeded, "\(answer.text)")
    }

    @Test(arguments: CertificateAuthority.KeyType.allCases, CertificateAuthority.Issuer.allCases)
    func everyKeyTypeAndIssuerVerifies(_ keyType: CertificateAuthority.KeyType, _ issuer: CertificateAuthority.Issuer) throws {
        let authority = try CertificateAuthority(keyType: keyType)
        let issued = try authority.issue(.server(names: ["localhost"]), keyType: keyType, signedBy: issuer)
        let suite = try CertificateAuthorityTests(authority: authority)
        let answer = try suite.verify(issued, "localhost")
        #expect(answer.succeeded, "\(answer.text)")
        #expect(issued.certificateChainPEM.components(separatedBy: "BEGIN CERTIFICATE").count == (issuer == .root ? 2 : 3))
    }

    @Test func wildcardMatchesOneLabelOnly() throws {
        let issued = try authority.issue(.server(names: ["*.example.org"]))
        #expect(try verify(issued, "mail.example.org").succeeded)
        #expect(try !verify(try authority.issue(.server(names: ["*.example.org"])), "a.b.example.org").succeeded)
        #expect(try !verify(try authority.issue(.server(names: ["*.example.org"])), "example.org").succeeded)
    }

    @Test func wrongHostFails() throws {
        let answer = try verify(try authority.issue(.server(names: ["other.example.org"])), "localhost")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("hostname mismatch"))
    }

    @Test func wrongAddressFails() throws {
        let answer = try verify(try authority.issue(.server(names: ["127.0.0.2"])), "127.0.0.1")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("IP address mismatch"))
    }

    @Test func expiredFails() throws {
        let answer = try verify(try authority.issue(.server(names: ["localhost"]), validity: .expired), "localhost")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("certificate has expired"))
    }

    @Test func notYetValidFails() throws {
        let answer = try verify(try authority.issue(.server(names: ["localhost"]), validity: .notYetValid), "localhost")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("not yet valid"))
    }

    @Test func anotherAuthorityIsNotTrusted() throws {
        let stranger = try CertificateAuthority()
        let answer = try verify(try stranger.issue(.server(names: ["localhost"])), "localhost")
        #expect(!answer.succeeded)
    }

    @Test func clientCertificateIsForClientsOnly() throws {
        let client = try authority.issue(.client(commonName: "Ada", email: "ada@example.org"))
        let written = try text(client)
        #expect(written.contains("Subject: CN = Ada") || written.contains("Subject: CN=Ada"))
        #expect(written.contains("email:ada@example.org"))
        let root = try authority.writeRoot(to: directory.path)
        let chain = try TemporaryDirectory()
        let path = try client.write(to: chain.path).certificate
        #expect(try OpenSSLProgram.run("verify", "-purpose", "sslclient", "-CAfile", root, "-untrusted", path, path).succeeded)
        #expect(try !OpenSSLProgram.run("verify", "-purpose", "sslserver", "-CAfile", root, "-untrusted", path, path).succeeded)
    }

    @Test func leafSaysWhatItIsFor() throws {
        let written = try text(try authority.issue(.server(names: ["localhost", "127.0.0.1"])))
        #expect(written.contains("Version: 3"))
        #expect(written.contains("X509v3 Basic Constraints: critical\n                CA:FALSE"))
        #expect(written.contains("X509v3 Key Usage: critical\n                Digital Signature\n"))
        #expect(written.contains("TLS Web Server Authentication"))
        #expect(written.contains("X509v3 Subject Key Identifier"))
        #expect(written.contains("X509v3 Authority Key Identifier"))
        #expect(written.contains("DNS:localhost, IP Address:127.0.0.1"))
    }

    @Test func intermediateMaySignLeavesOnly() throws {
        let path = directory.path + "/intermediate.pem"
        try authority.intermediatePEM.write(toFile: path, atomically: true, encoding: .utf8)
        let written = try OpenSSLProgram.run("x509", "-noout", "-text", "-in", path).text
        #expect(written.contains("X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0"))
        #expect(written.contains("X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign"))
    }

    @Test func keyBelongsToTheCertificate() throws {
        let files = try authority.issue(.server(names: ["localhost"])).write(to: directory.path)
        let ofCertificate = try OpenSSLProgram.run("x509", "-noout", "-pubkey", "-in", files.certificate)
        let ofKey = try OpenSSLProgram.run("pkey", "-pubout", "-in", files.key)
        #expect(ofCertificate.succeeded)
        #expect(ofCertificate.text == ofKey.text)
    }

    @Test func onlyTheOwnerReadsTheKeyFile() throws {
        let files = try authority.issue(.server(names: ["localhost"])).write(to: directory.path)
        let attributes = try FileManager.default.attributesOfItem(atPath: files.key)
        #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
    }

    @Test func serialNumbersDiffer() throws {
        let numbers = try (0..<20).map { _ in try authority.issue(.server(names: ["localhost"])).serialNumber }
        #expect(Set(numbers).count == 20)
    }

    @Test func nameWithNULIsWrittenWhole() throws {
        let answer = try verify(try authority.issue(.server(names: ["localhost\0.example.org"], commonName: "x")), "localhost")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("hostname mismatch"))
    }

    @Test func nameWithCommaStaysOneName() throws {
        let answer = try verify(try authority.issue(.server(names: ["example.org,DNS:localhost"], commonName: "x")), "localhost")
        #expect(!answer.succeeded)
        #expect(answer.text.contains("hostname mismatch"))
    }

    @Test func longNameIsAnAlternativeNameOnly() throws {
        let long = String(repeating: "a", count: 60) + ".example.org"
        let issued = try authority.issue(.server(names: [long]))
        #expect(try verify(issued, long).succeeded)
    }

    @Test func unusableNamesAreRefused() throws {
        let unusable: [CertificateAuthority.Purpose] = [
            .server(names: [""]), .server(names: ["bücher.example"]), .client(commonName: ""),
            .client(commonName: String(repeating: "x", count: 65)),
        ]
        for purpose in unusable {
            let error = #expect(throws: CertificateAuthorityError.self) { try authority.issue(purpose) }
            #expect(error?.code == .invalidName)
        }
    }

    @Test func unwritableDirectoryIsAnErrorWithItsNumber() throws {
        let error = #expect(throws: CertificateAuthorityError.self) { try authority.writeRoot(to: "/dev/null/nowhere") }
        #expect(error?.code == .fileNotWritten)
        #expect(error?.errorNumber == ENOTDIR)
    }
}

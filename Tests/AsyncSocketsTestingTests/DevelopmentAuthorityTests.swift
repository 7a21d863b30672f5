import AsyncSocketsTesting
import Foundation
import SocketTLS
import SocketTestTraits
import Testing

/// Authorities that are stored in files, signing requests and PKCS #12 files.
@Suite(.ownThreads) struct DevelopmentAuthorityTests {
    private let authority: DevelopmentAuthority
    private let directory: TemporaryDirectory

    init() throws {
        authority = try DevelopmentAuthority(name: "Development")
        directory = try TemporaryDirectory()
    }

    private func write(_ contents: some Sequence<UInt8>, _ name: String) throws -> String {
        let path = directory.path + "/" + name
        try Data(contents).write(to: URL(filePath: path))
        return path
    }

    private func verify(_ pem: String, _ options: String...) throws -> OpenSSLProgram.Answer {
        let root = try write(authority.certificatePEM.utf8, "ca.pem")
        let certificate = try write(pem.utf8, "certificate.pem")
        return try OpenSSLProgram.run(["verify", "-x509_strict", "-CAfile", root] + options + [certificate])
    }

    @Test func aLoadedAuthorityIssuesCertificates() throws {
        let loaded = try DevelopmentAuthority(
            certificatePEM: authority.certificatePEM, privateKeyPEM: authority.privateKeyPEM)
        let issued = try loaded.issue(.server(names: ["localhost", "::1"]))
        let answer = try verify(issued.certificatePEM, "-purpose", "sslserver", "-verify_hostname", "localhost")
        #expect(answer.succeeded, "\(answer.text)")
    }

    @Test func anAuthorityNeedsItsOwnKey() throws {
        let other = try DevelopmentAuthority(name: "Other")
        let error = #expect(throws: CertificateAuthorityError.self) {
            try DevelopmentAuthority(certificatePEM: authority.certificatePEM, privateKeyPEM: other.privateKeyPEM)
        }
        #expect(error?.code == .invalidAuthority)
    }

    @Test func aServerCertificateIsNoAuthority() throws {
        let issued = try authority.issue(.server(names: ["localhost"]))
        let error = #expect(throws: CertificateAuthorityError.self) {
            try DevelopmentAuthority(certificatePEM: issued.certificatePEM, privateKeyPEM: issued.privateKeyPEM)
        }
        #expect(error?.code == .invalidAuthority)
    }

    @Test func textsThatCannotBeDecodedAreErrors() throws {
        let failing: [() throws -> Void] = [
            { _ = try DevelopmentAuthority(certificatePEM: "no", privateKeyPEM: authority.privateKeyPEM) },
            { _ = try DevelopmentAuthority(certificatePEM: authority.certificatePEM, privateKeyPEM: "no") },
            { _ = try CertificateRequest(pem: authority.certificatePEM) },
            {
                _ = try PKCS12File.bytes(
                    certificateChainPEM: "", privateKeyPEM: authority.privateKeyPEM, name: "", passphrase: "")
            },
        ]
        for body in failing {
            let error = #expect(throws: CertificateAuthorityError.self) { try body() }
            #expect(error?.code == .unreadable)
        }
    }

    @Test(arguments: [-400, -1, 30, 3650]) func aCertificateEndsAfterTheGivenDays(days: Int) throws {
        let certificate = try TLSCertificate(pem: authority.issue(.server(names: ["localhost"]), days: days).certificatePEM)
        #expect(abs(certificate.notAfter.timeIntervalSinceNow - Double(days) * 86_400) < 60)
        #expect(certificate.notBefore < certificate.notAfter)
        #expect(certificate.notBefore < Date())
    }

    @Test(arguments: CertificateAuthority.KeyType.allCases)
    func aRequestBecomesACertificate(keyType: CertificateAuthority.KeyType) throws {
        let names = ["www.example.org", "127.0.0.1", "2001:db8::1"]
        let (request, key) = try CertificateRequest.generate(.server(names: names), keyType: keyType)
        #expect(request.names == names)
        let pem = try authority.issue(request.purpose(isClient: false), for: request)
        let answer = try verify(pem, "-purpose", "sslserver", "-verify_ip", "2001:db8::1")
        #expect(answer.succeeded, "\(answer.text)")
        // The certificate belongs to the key of the request.
        _ = try TLSIdentity(pem: pem + key)
    }

    @Test func anOpenSSLRequestIsRead() throws {
        let (key, file) = (directory.path + "/key.pem", directory.path + "/request.csr")
        let answer = try OpenSSLProgram.run([
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", file,
            "-subj", "/O=Example/CN=ada", "-addext", "subjectAltName=email:ada@example.org",
        ])
        #expect(answer.succeeded, "\(answer.text)")
        let request = try CertificateRequest(pem: String(contentsOfFile: file, encoding: .utf8))
        #expect(request.purpose(isClient: true) == .client(commonName: "ada", email: "ada@example.org"))
    }

    @Test func aRequestWithADamagedSignatureIsRejected() throws {
        let pem = try CertificateRequest.generate(.server(names: ["localhost"])).request.pem
        let body = pem.split(separator: "\n").dropFirst().dropLast().joined()
        var der = try #require(Data(base64Encoded: body))
        der[der.count - 1] ^= 1
        let damaged = "-----BEGIN CERTIFICATE REQUEST-----\n\(der.base64EncodedString())\n-----END CERTIFICATE REQUEST-----\n"
        let error = #expect(throws: CertificateAuthorityError.self) { try CertificateRequest(pem: damaged) }
        #expect(error?.code == .unreadable)
    }

    @Test func aPKCS12FileIsReadByOpenSSLAndByTheLibrary() throws {
        let issued = try authority.issue(.client(commonName: "ada"))
        let bytes = try PKCS12File.bytes(
            certificateChainPEM: issued.certificateChainPEM + authority.certificatePEM, privateKeyPEM: issued.privateKeyPEM,
            name: "Ada", passphrase: "secret")
        #expect(try TLSIdentity(pkcs12: bytes, passphrase: "secret").certificateChain.first?.pem == issued.certificatePEM)
        #expect(throws: TLSError.self) { try TLSIdentity(pkcs12: bytes, passphrase: "wrong") }
        let answer = try OpenSSLProgram.run([
            "pkcs12", "-in", write(bytes, "ada.p12"), "-passin", "pass:secret", "-nokeys",
        ])
        #expect(answer.text.contains("friendlyName: Ada"))
        #expect(answer.text.components(separatedBy: "BEGIN CERTIFICATE").count == 3)
    }

    @Test func aPKCS12FileNeedsTheKeyOfItsCertificate() throws {
        let issued = try authority.issue(.client(commonName: "ada"))
        let error = #expect(throws: CertificateAuthorityError.self) {
            try PKCS12File.bytes(
                certificateChainPEM: issued.certificatePEM, privateKeyPEM: authority.privateKeyPEM, name: "Ada", passphrase: "x")
        }
        #expect(error?.code == .invalidAuthority)
    }

    @Test func aSelfSignedCertificateIsItsOwnIssuer() throws {
        let issued = try DevelopmentAuthority.selfSigned(.server(names: ["localhost"]))
        let certificate = try TLSCertificate(pem: issued.certificatePEM)
        #expect(certificate.subject == certificate.issuer)
        #expect(!certificate.isAuthority)
    }
}

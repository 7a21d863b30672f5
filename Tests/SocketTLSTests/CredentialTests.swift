import FoundationEssentials
import SocketTLS
import Testing

@Suite struct CertificateTests {
    @Test func aCertificateTellsWhatIsInIt() throws {
        let authority = try TestAuthority()
        let request = CertificateRequest(
            commonName: "mail.example.org", alternativeNames: "DNS:mail.example.org,DNS:*.example.org,IP:127.0.0.1,IP:::1")
        let certificate = try Certificate(pem: authority.issue(request).certificatePEM)
        #expect(certificate.subject == "CN=mail.example.org")
        #expect(certificate.issuer == "CN=Test Root")
        #expect(certificate.commonName == "mail.example.org")
        #expect(certificate.dnsNames == ["mail.example.org", "*.example.org"])
        #expect(certificate.ipAddresses == ["127.0.0.1", "::1"])
        #expect(abs(certificate.notBefore.timeIntervalSinceNow + 3600) < 60)
        #expect(abs(certificate.notAfter.timeIntervalSinceNow - 86_400) < 60)
        #expect(certificate.sha256Fingerprint.count == 32)
        #expect(!certificate.serialNumber.isEmpty)
    }

    @Test func derAndPEMAreTheSameCertificate() throws {
        let certificate = try TestAuthority().certificate
        #expect(try Certificate(der: certificate.derBytes) == certificate)
        #expect(try Certificate(pem: certificate.pem) == certificate)
        #expect(try Set([certificate, Certificate(pem: certificate.pem)]).count == 1)
        #expect(try certificate != TestAuthority().certificate)
    }

    @Test func aBundleIsReadInOrderAndOtherBlocksAreSkipped() throws {
        let first = try TestAuthority(name: "first")
        let second = try TestAuthority(name: "second")
        let pem = "a comment\n" + first.pem + (try TestKey().pem()) + second.pem
        #expect(try Certificate.certificates(pem: pem).map(\.commonName) == ["first", "second"])
    }

    @Test(arguments: ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
    func textWithoutACertificateIsRefused(text: String) {
        #expect(thrownCode { try Certificate(pem: text) } == .invalidCertificate)
        #expect(thrownCode { try Certificate.certificates(pem: text) } == .invalidCertificate)
    }

    @Test func bytesThatAreNoCertificateAreRefused() throws {
        #expect(thrownCode { try Certificate(der: []) } == .invalidCertificate)
        #expect(thrownCode { try Certificate(der: [1, 2, 3]) } == .invalidCertificate)
        let der = try TestAuthority().certificate.derBytes
        #expect(thrownCode { try Certificate(der: der + [0]) } == .invalidCertificate)
        #expect(thrownCode { try Certificate(der: Array(der.dropLast())) } == .invalidCertificate)
    }

    @Test(arguments: ["/nonexistent/a.pem", "/", "/dev/null"])
    func aFileThatCannotBeReadIsNamed(path: String) {
        let error = thrown { try Certificate.certificates(file: path) }
        #expect(error?.code == .invalidCertificate)
        #expect(error?.message.contains(path) == true)
    }

    @Test func anEncryptedCertificateBlockNeverAsksOnTheTerminal() {
        let pem = """
            -----BEGIN CERTIFICATE-----
            Proc-Type: 4,ENCRYPTED
            DEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF

            AAAAAAAAAAAAAAAAAAAAAA==
            -----END CERTIFICATE-----
            """
        #expect(thrownCode { try Certificate(pem: pem) } == .invalidCertificate)
    }

    @Test func aNameWithALineBreakDoesNotBreakTheMessage() throws {
        var fixture = try Fixture(request: .person("evil\r\nFAKE LOG LINE"))
        fixture.client.trustRoots = try .certificates([fixture.authority.certificate])
        let pair = try fixture.pair()
        pair.shakeHands()
        let message = try #require(pair.clientError?.message)
        #expect(!message.contains("\n") && !message.contains("\r"))
    }
}

@Suite struct PrivateKeyTests {
    @Test func aKeyIsReadFromTextAndFile() throws {
        let key = try TestKey()
        let file = try TemporaryFile(key.pem())
        #expect(try PrivateKey(pem: key.pem()) == PrivateKey(file: file.path))
        #expect(try PrivateKey(pem: key.pem()) != PrivateKey(pem: TestKey().pem()))
    }

    @Test func anEncryptedKeyNeedsItsPassphrase() throws {
        let key = try TestKey()
        let pem = key.pem(passphrase: "sesame")
        #expect(try PrivateKey(pem: pem, passphrase: "sesame") == PrivateKey(pem: key.pem()))
        let missing = thrown { try PrivateKey(pem: pem) }
        #expect(missing?.code == .invalidPrivateKey)
        #expect(missing?.message.contains("no passphrase was given") == true)
        let wrong = thrown { try PrivateKey(pem: pem, passphrase: "wrong") }
        #expect(wrong?.code == .invalidPrivateKey)
        #expect(wrong?.message.contains("does not fit") == true)
        #expect(thrownCode { try PrivateKey(pem: pem, passphrase: String(repeating: "a", count: 5000)) } == .invalidPrivateKey)
    }

    @Test(arguments: ["", "nonsense"])
    func textWithoutAKeyIsRefused(text: String) {
        #expect(thrownCode { try PrivateKey(pem: text) } == .invalidPrivateKey)
    }

    @Test func aFileThatCannotBeReadIsNamed() {
        #expect(thrown { try PrivateKey(file: "/nonexistent/key.pem") }?.message.contains("/nonexistent/key.pem") == true)
    }
}

@Suite struct IdentityTests {
    @Test func aKeyOfAnotherCertificateIsRefused() throws {
        let authority = try TestAuthority()
        let issued = try authority.issue(.host("a.example.org"))
        let error = thrown { try TLSIdentity(pem: issued.certificatePEM + TestKey().pem()) }
        #expect(error?.code == .keyMismatch)
        #expect(error?.message.contains("a.example.org") == true)
    }

    @Test func anEmptyChainIsRefused() throws {
        let key = try PrivateKey(pem: TestKey().pem())
        #expect(thrownCode { try TLSIdentity(certificateChain: [], privateKey: key) } == .invalidCertificate)
    }

    @Test func anIdentityIsReadFromTwoFiles() throws {
        let issued = try TestAuthority().issue(.host("a.example.org"))
        let certificate = try TemporaryFile(issued.certificatePEM)
        let key = try TemporaryFile(issued.key.pem(passphrase: "sesame"))
        let identity = try TLSIdentity(certificateFile: certificate.path, privateKeyFile: key.path, passphrase: "sesame")
        #expect(try identity == TLSIdentity(pem: issued.certificatePEM + issued.key.pem()))
    }
}

/// The typed error that `body` throws.
func thrown<Value>(_ body: () throws -> Value) -> TLSError? {
    do {
        _ = try body()
        return nil
    } catch {
        return error as? TLSError
    }
}

func thrownCode<Value>(_ body: () throws -> Value) -> TLSError.Code? {
    thrown(body)?.code
}

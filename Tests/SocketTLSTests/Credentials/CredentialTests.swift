import AsyncSocketsTesting
import COpenSSL
import FoundationEssentials
import SocketTLS
import Testing

@Suite struct CertificateTests {
    @Test func aCertificateTellsWhatIsInIt() throws {
        let names = ["mail.example.org", "*.example.org", "127.0.0.1", "::1"]
        let issued = try CertificateAuthority(name: "Test").issue(.server(names: names))
        let certificate = try TLSCertificate(pem: issued.certificatePEM)
        #expect(certificate.subject == "CN=mail.example.org")
        #expect(certificate.issuer == "CN=Test Intermediate")
        #expect(certificate.commonName == "mail.example.org")
        #expect(certificate.dnsNames == ["mail.example.org", "*.example.org"])
        #expect(certificate.ipAddresses == ["127.0.0.1", "::1"])
        #expect(abs(certificate.notBefore.timeIntervalSinceNow + 86_400) < 60)
        #expect(abs(certificate.notAfter.timeIntervalSinceNow - 365 * 86_400) < 60)
        #expect(certificate.sha256Fingerprint.count == 32)
    }

    /// Enough serial numbers that some start with a zero.
    @Test func serialNumbersAreWrittenAsTheyWereMade() throws {
        let authority = try CertificateAuthority(name: "Test")
        for _ in 0..<100 {
            let issued = try authority.issue(.client(commonName: "client"))
            #expect(try TLSCertificate(pem: issued.certificatePEM).serialNumber == issued.serialNumber)
        }
    }

    @Test func derAndPEMAreTheSameCertificate() throws {
        let certificate = try root()
        #expect(try TLSCertificate(der: certificate.derBytes) == certificate)
        #expect(try TLSCertificate(pem: certificate.pem) == certificate)
        #expect(try Set([certificate, TLSCertificate(pem: certificate.pem)]).count == 1)
        #expect(try certificate != root())
    }

    @Test func aBundleIsReadInOrderAndOtherBlocksAreSkipped() throws {
        let issued = try CertificateAuthority(name: "Test").issue(.client(commonName: "first"))
        let pem = "a comment\n" + issued.pem + issued.certificateChainPEM
        #expect(try TLSCertificate.certificates(pem: pem).map(\.commonName) == ["first", "first", "Test Intermediate"])
    }

    /// An incomplete list would hide an expired certificate or a root.
    @Test(arguments: ["TRUSTED CERTIFICATE", "PKCS7"]) func certificatesInOtherBlocksAreNotSkipped(kind: String) throws {
        let other = try root().pem.replacing(" CERTIFICATE-", with: " \(kind)-")
        for pem in [other, try root().pem + other, other + (try root().pem)] {
            let error = thrown { try TLSCertificate.certificates(pem: pem) }
            #expect(error?.code == .invalidCertificate)
            #expect(error?.message.contains("\"\(kind)\"") == true)
        }
    }

    @Test(arguments: ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
    func textWithoutACertificateIsRefused(text: String) {
        #expect(thrownCode { try TLSCertificate(pem: text) } == .invalidCertificate)
        #expect(thrownCode { try TLSCertificate.certificates(pem: text) } == .invalidCertificate)
    }

    @Test func bytesThatAreNoCertificateAreRefused() throws {
        #expect(thrownCode { try TLSCertificate(der: []) } == .invalidCertificate)
        #expect(thrownCode { try TLSCertificate(der: [1, 2, 3]) } == .invalidCertificate)
        let der = try root().derBytes
        #expect(thrownCode { try TLSCertificate(der: der + [0]) } == .invalidCertificate)
        #expect(thrownCode { try TLSCertificate(der: Array(der.dropLast())) } == .invalidCertificate)
    }

    @Test(arguments: ["/nonexistent/a.pem", "/", "/dev/null"])
    func aFileThatCannotBeReadIsNamed(path: String) {
        let error = thrown { try TLSCertificate.certificates(file: path) }
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
        #expect(thrownCode { try TLSCertificate(pem: pem) } == .invalidCertificate)
    }

    @Test func aNameWithALineBreakDoesNotBreakTheMessage() throws {
        var fixture = try Fixture(purpose: .server(names: [], commonName: "evil\r\nFAKE LOG LINE"))
        fixture.client.trustRoots = try fixture.authority.roots
        let pair = try fixture.pair()
        pair.shakeHands()
        let message = try #require(pair.clientError?.message)
        #expect(!message.contains("\n") && !message.contains("\r"))
    }
}

@Suite struct PrivateKeyTests {
    @Test func aKeyIsReadFromTextAndFile() throws {
        let pem = try keyPEM()
        let file = try TemporaryFile(pem)
        #expect(try TLSPrivateKey(pem: pem) == TLSPrivateKey(file: file.path))
        #expect(try TLSPrivateKey(pem: pem) != TLSPrivateKey(pem: keyPEM()))
    }

    @Test func anEncryptedKeyNeedsItsPassphrase() throws {
        let plain = try keyPEM()
        let pem = try encrypted(plain, "sesame")
        #expect(try TLSPrivateKey(pem: pem, passphrase: "sesame") == TLSPrivateKey(pem: plain))
        let missing = thrown { try TLSPrivateKey(pem: pem) }
        #expect(missing?.code == .invalidPrivateKey)
        #expect(missing?.message.contains("no passphrase was given") == true)
        let wrong = thrown { try TLSPrivateKey(pem: pem, passphrase: "wrong") }
        #expect(wrong?.code == .invalidPrivateKey)
        #expect(wrong?.message.contains("passphrase is wrong") == true)
        #expect(thrownCode { try TLSPrivateKey(pem: pem, passphrase: String(repeating: "a", count: 5000)) } == .invalidPrivateKey)
    }

    @Test(arguments: ["", "nonsense"])
    func textWithoutAKeyIsRefused(text: String) {
        #expect(thrownCode { try TLSPrivateKey(pem: text) } == .invalidPrivateKey)
    }

    @Test func aFileThatCannotBeReadIsNamed() {
        #expect(thrown { try TLSPrivateKey(file: "/nonexistent/key.pem") }?.message.contains("/nonexistent/key.pem") == true)
    }
}

@Suite struct IdentityTests {
    @Test func aKeyOfAnotherCertificateIsRefused() throws {
        let issued = try CertificateAuthority().issue(.server(names: ["a.example.org"]))
        let error = thrown { try TLSIdentity(pem: issued.certificatePEM + keyPEM()) }
        #expect(error?.code == .keyMismatch)
        #expect(error?.message.contains("a.example.org") == true)
    }

    @Test func anEmptyChainIsRefused() throws {
        let key = try TLSPrivateKey(pem: keyPEM())
        #expect(thrownCode { try TLSIdentity(certificateChain: [], privateKey: key) } == .invalidCertificate)
    }

    @Test func anIdentityIsReadFromTwoFiles() throws {
        let issued = try CertificateAuthority().issue(.server(names: ["a.example.org"]))
        let certificate = try TemporaryFile(issued.certificatePEM)
        let key = try TemporaryFile(encrypted(issued.privateKeyPEM, "sesame"))
        let identity = try TLSIdentity(certificateFile: certificate.path, privateKeyFile: key.path, passphrase: "sesame")
        #expect(try identity == TLSIdentity(pem: issued.pem))
    }
}

private func root() throws -> TLSCertificate {
    try TLSCertificate(pem: CertificateAuthority().rootPEM)
}

private func keyPEM() throws -> String {
    try CertificateAuthority().issue(.client(commonName: "anybody")).privateKeyPEM
}

/// Returns the key in `pem`, encrypted.
private func encrypted(_ pem: String, _ passphrase: String) throws -> String {
    let key = Array(pem.utf8).withUnsafeBytes { bytes in
        // This kind of BIO reads from the caller's memory.
        let bio = BIO_new_mem_buf(bytes.baseAddress, Int32(bytes.count))
        defer { BIO_free(bio) }
        return PEM_read_bio_PrivateKey(bio, nil, nil, nil)
    }
    defer { EVP_PKEY_free(key) }
    return try #require(
        MemoryBIO.text {
            PEM_write_bio_PrivateKey($0, key, EVP_aes_256_cbc(), passphrase, Int32(passphrase.utf8.count), nil, nil)
        })
}

/// Returns the typed error that `body` throws.
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

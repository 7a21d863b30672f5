import AsyncSocketsTesting
import SocketTLS
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct KeyFormTests {
    private static func keyPEM(_ type: CertificateAuthority.KeyType = .p256) throws -> String {
        try CertificateAuthority().issue(.client(commonName: "anybody"), keyType: type).privateKeyPEM
    }

    @Test(arguments: CertificateAuthority.KeyType.allCases, WrittenKey.Form.allCases)
    func aKeyIsReadFromDER(type: CertificateAuthority.KeyType, form: WrittenKey.Form) throws {
        let pem = try Self.keyPEM(type)
        let der = try WrittenKey(pem: pem).der(form)
        #expect(try TLSPrivateKey(der: der) == TLSPrivateKey(pem: pem))
        #expect(thrownCode { try TLSPrivateKey(der: der + [0]) } == .invalidPrivateKey)
        #expect(thrownCode { try TLSPrivateKey(der: der.dropLast()) } == .invalidPrivateKey)
        let file = try TemporaryFile(bytes: der)
        #expect(try TLSPrivateKey(file: file.path) == TLSPrivateKey(pem: pem))
    }

    @Test func anEncryptedKeyInDERNeedsItsPassphrase() throws {
        let pem = try Self.keyPEM()
        let der = try WrittenKey(pem: pem).encryptedDER("sesame")
        #expect(try TLSPrivateKey(der: der, passphrase: "sesame") == TLSPrivateKey(pem: pem))
        #expect(thrown { try TLSPrivateKey(der: der) }?.message.contains("no passphrase was given") == true)
        #expect(thrown { try TLSPrivateKey(der: der, passphrase: "wrong") }?.message.contains("passphrase is wrong") == true)
        let file = try TemporaryFile(bytes: der)
        #expect(try TLSPrivateKey(file: file.path, passphrase: "sesame") == TLSPrivateKey(pem: pem))
    }

    @Test func bytesThatAreNoPrivateKeyAreRefused() throws {
        let publicHalf = try WrittenKey(pem: Self.keyPEM()).publicDER()
        for bytes in [[], [0x30], [1, 2, 3], publicHalf] {
            let error = thrown { try TLSPrivateKey(der: bytes, passphrase: "any") }
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message == "the data is not a DER-encoded private key")
        }
    }

    @Test func thePassphraseClosureIsCalledOnceForAnEncryptedKey() throws {
        let pem = try Self.keyPEM()
        let key = try WrittenKey(pem: pem)
        let encrypted = [try TemporaryFile(key.encryptedPEM("sesame")), try TemporaryFile(bytes: key.encryptedDER("sesame"))]
        for file in encrypted {
            var calls = 0
            let read = try TLSPrivateKey(file: file.path) {
                calls += 1
                return "sesame"
            }
            #expect(try read == TLSPrivateKey(pem: pem))
            #expect(calls == 1)
        }
    }

    @Test func thePassphraseClosureIsNotCalledForAnUnencryptedKey() throws {
        let pem = try Self.keyPEM()
        let der = try WrittenKey(pem: pem).der(.pkcs8)
        var calls = 0
        let ask = {
            calls += 1
            return "sesame"
        }
        #expect(try TLSPrivateKey(pem: pem, passphrase: ask) == TLSPrivateKey(der: der, passphrase: ask))
        #expect(calls == 0)
    }

    private struct VaultIsLocked: Error {}

    @Test func theErrorOfTheClosureIsReported() throws {
        let key = try WrittenKey(pem: Self.keyPEM())
        let (pem, der) = (try key.encryptedPEM("sesame"), try key.encryptedDER("sesame"))
        for error in [
            thrown { try TLSPrivateKey(pem: pem) { throw VaultIsLocked() } },
            thrown { try TLSPrivateKey(der: der) { throw VaultIsLocked() } },
        ] {
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message.contains("the passphrase is not available: VaultIsLocked()") == true)
        }
        let own = TLSError(.internalError, "The vault is gone.")
        #expect(thrown { try TLSPrivateKey(pem: pem) { throw own } } == own)
    }

    @Test func anIdentityIsReadFromDERFiles() throws {
        let issued = try CertificateAuthority().issue(.server(names: ["a.example.org"]), signedBy: .root)
        let identity = try issued.identity()
        let certificate = try TemporaryFile(bytes: identity.certificateChain[0].derBytes)
        let key = try TemporaryFile(bytes: WrittenKey(pem: issued.privateKeyPEM).encryptedDER("sesame"))
        #expect(try TLSIdentity(certificateFile: certificate.path, privateKeyFile: key.path) { "sesame" } == identity)
    }
}

/// OpenSSL stores, here with its own loader for files.
@Suite struct KeyURITests {
    private let issued: IssuedCertificate
    private let file: TemporaryFile

    init() throws {
        issued = try CertificateAuthority().issue(.server(names: ["a.example.org"]))
        file = try TemporaryFile(WrittenKey(pem: issued.privateKeyPEM).encryptedPEM("sesame"))
    }

    @Test func aURINamesTheKeyOfAnIdentity() throws {
        let chain = try TLSCertificate.certificates(pem: issued.certificateChainPEM)
        let uri = "file:\(file.path)"
        var calls = 0
        let identity = try TLSIdentity(certificateChain: chain, privateKeyURI: uri) {
            calls += 1
            return "sesame"
        }
        #expect(try identity == issued.identity())
        #expect(calls == 1)
        #expect(try TLSIdentity(certificateChain: chain, privateKeyURI: uri, passphrase: "sesame") == identity)
    }

    @Test func aURIWithoutAReadableKeyIsNamed() throws {
        let uri = "file:\(file.path)"
        #expect(thrown { try TLSPrivateKey(uri: uri) }?.message.contains("no passphrase was given") == true)
        #expect(thrown { try TLSPrivateKey(uri: uri, passphrase: "wrong") }?.message.contains("passphrase is wrong") == true)
        let certificate = try TemporaryFile(issued.certificatePEM)
        for other in ["file:\(certificate.path)", "file:/nonexistent/key.pem", "unknown:key", ""] {
            let error = thrown { try TLSPrivateKey(uri: other) }
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message == "OpenSSL found no private key at the URI \"\(other)\"")
        }
    }

    @Test func thePINOfAURIStaysOutOfMessages() {
        let error = thrown { try TLSPrivateKey(uri: "pkcs11:object=mail?pin-value=1234") }
        #expect(error?.message == "OpenSSL found no private key at the URI \"pkcs11:object=mail\"")
        #expect(error?.description.contains("1234") == false)
    }
}

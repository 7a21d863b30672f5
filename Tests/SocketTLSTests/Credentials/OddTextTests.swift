import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

/// Text that is long, unusual or truncated either works or causes a meaningful error.
///
/// Selected by index, because a test's arguments are printed.
@Suite struct OddTextTests {
    static let odd = ["", "\0", "a\0b", "ü", "🔑", "\u{202E}abc", String(repeating: "a", count: 1_000_000), "-----BEGIN", "\r\n"]

    @Test(arguments: 0..<odd.count)
    func aServerNameWorksOrIsRefused(_ index: Int) {
        let text = Self.odd[index]
        let error = thrown { try TLSContext.context(for: .client(serverName: text)) }
        // Letters and hyphens form a valid name.
        #expect(error?.code == (text == "-----BEGIN" ? nil : .invalidSettings))
        #expect((error?.message.utf8.count ?? 0) < 1_000)
        if let error { #expect(error.message.hasPrefix("the server name \"")) }
    }

    /// Whatever the resolver accepts as an address is an address, and is never sent as SNI.
    @Test(arguments: [
        ("127.1", "127.0.0.1"), ("0x7f.0.0.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("0177.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"), ("[::1]", "::1"), ("[fe80::1%lo]", "fe80::1"), ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ])
    func anAddressInAnyFormIsAnAddress(name: String, address: String) throws {
        let pair = try Fixture(serverName: name, purpose: .server(names: [address])).pair()
        pair.shakeHands()
        #expect(pair.isComplete, "\(String(describing: pair.clientError))")
        #expect(pair.server.session?.serverName == nil)
        let other = try Fixture(
            serverName: name, purpose: .server(names: ["192.0.2.1", name == "[::1]" ? "a" : "127.1.example"])
        ).pair()
        other.shakeHands()
        #expect(other.clientError?.code == .hostNameMismatch)
    }

    @Test(arguments: ["\0", "a\0b", "ü", "🔑", String(repeating: "é", count: 127)])
    func anApplicationProtocolIsBytes(name: String) throws {
        var fixture = try Fixture()
        fixture.client.applicationProtocols = [name]
        fixture.server.applicationProtocols = ["x", name]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.client.session?.applicationProtocol == name)
        #expect(pair.server.session?.applicationProtocol == name)
    }

    @Test(arguments: 0..<odd.count)
    func aPEMTextIsRefused(_ index: Int) {
        let text = Self.odd[index]
        #expect(thrownCode { try TLSCertificate(pem: text) } == .invalidCertificate)
        #expect(thrownCode { try TLSCertificate.certificates(pem: text) } == .invalidCertificate)
        #expect(thrownCode { try TLSPrivateKey(pem: text) } == .invalidPrivateKey)
        #expect(thrownCode { try TLSPrivateKey(pem: text, passphrase: text) } == .invalidPrivateKey)
        #expect(thrownCode { try TLSCertificate(der: Array(text.utf8)) } == .invalidCertificate)
    }

    @Test(arguments: 0..<odd.count)
    func aPathIsRefused(_ index: Int) throws {
        let path = Self.odd[index]
        for error in [
            thrown { try TLSCertificate.certificates(file: path) }, thrown { try TLSPrivateKey(file: path) },
            thrown { try TLSIdentity(certificateFile: path, privateKeyFile: path) },
        ] {
            #expect(error?.code == .invalidCertificate || error?.code == .invalidPrivateKey)
            #expect((error?.message.utf8.count ?? 0) < 1_000)
        }
        var settings = try Fixture().client
        settings.trustRoots = .file(path: path)
        #expect(thrownCode { try TLSContext.context(for: settings) } == .invalidCertificate)
    }

    /// The system would open the path before the NUL.
    @Test func aPathWithANULNamesNoOtherFile() throws {
        let file = try TemporaryFile(try CertificateAuthority().rootPEM)
        #expect(try TLSCertificate.certificates(file: file.path).count == 1)
        let error = thrown { try TLSCertificate.certificates(file: file.path + "\0.pem") }
        #expect(error?.message.contains("NUL") == true)
        #expect(thrown { try TLSPrivateKey(file: file.path + "\0") }?.message.contains("NUL") == true)
    }

    @Test(arguments: ["ü", "🔑", String(repeating: "a", count: 1024), String(repeating: "a", count: 1025)])
    func aPassphraseFitsOrIsTooLong(passphrase: String) throws {
        let key = try WrittenKey(pem: CertificateAuthority().issue(.client(commonName: "a")).privateKeyPEM)
        let pem = try key.encryptedPEM(passphrase)
        let error = thrown { try TLSPrivateKey(pem: pem, passphrase: passphrase) }
        #expect(error == nil || passphrase.utf8.count > 1024)
        if passphrase.utf8.count > 1024 {
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message.contains("1024") == true)
        }
    }
}

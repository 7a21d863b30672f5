import FoundationEssentials
import SocketTLS
import Testing

/// The files in Certificates/, each with the purpose given in the README.
@Suite struct FixtureTests {
    private let passphrase = "correct horse battery staple"

    private func path(_ name: String) -> String {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        return "/\(root)/Certificates/\(name).pem"
    }

    private func code(_ body: () throws -> Void) -> TLSError.Code? {
        #expect(throws: TLSError.self) { try body() }?.code
    }

    @Test(arguments: ["encrypted-key", "traditional-key", "traditional-encrypted-key"])
    func keyInEveryFormBelongsToTheCertificate(_ key: String) throws {
        let identity = try TLSIdentity(
            certificateFile: path("certificate"), privateKeyFile: path(key), passphrase: passphrase)
        #expect(identity.certificateChain.first?.commonName == "fixture.example")
    }

    @Test func otherKeyDoesNotBelongToTheCertificate() throws {
        _ = try TLSPrivateKey(file: path("other-key"))
        #expect(
            code { _ = try TLSIdentity(certificateFile: path("certificate"), privateKeyFile: path("other-key")) } == .keyMismatch)
    }

    @Test(arguments: ["encrypted-key", "traditional-encrypted-key"], [nil, "", "wrong"])
    func encryptedKeyNeedsItsPassphrase(_ key: String, _ wrong: String?) {
        #expect(code { _ = try TLSPrivateKey(file: path(key), passphrase: wrong) } == .invalidPrivateKey)
    }

    @Test func bundleIsReadWholeBetweenItsComments() throws {
        let names = try TLSCertificate.certificates(file: path("bundle")).map(\.commonName)
        #expect(names == ["fixture.example", "second.example"])
    }

    @Test(arguments: ["malformed", "truncated"])
    func damagedFileIsRefusedWhole(_ name: String) {
        #expect(code { _ = try TLSCertificate.certificates(file: path(name)) } == .invalidCertificate)
    }

    @Test func dateBeyond2049IsRead() throws {
        let certificates = try TLSCertificate.certificates(file: path("certificate"))
        let first = try #require(certificates.first)
        #expect(first.notAfter.timeIntervalSince(first.notBefore) == 36525 * 86400)
    }
}

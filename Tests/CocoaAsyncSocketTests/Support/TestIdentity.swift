import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import Testing

/// An identity from the test CA, imported from a PKCS#12 file as in a program.
struct TestIdentity {
    let identity: SecIdentity
    let certificate: SecCertificate
    let chain: [SecCertificate]

    static let passphrase = "sesame"

    static func make(_ purpose: CertificateAuthority.Purpose = .server(names: ["localhost"])) throws -> TestIdentity {
        let file = try archive(TestCertificates.authority.issue(purpose))
        let (status, identity, chain) = Spellings.identity(pkcs12: file, passphrase: passphrase)
        #expect(status == errSecSuccess)
        return TestIdentity(identity: try #require(identity), certificate: try #require(chain.first), chain: chain)
    }

    /// The root of the test CA.
    static var root: SecCertificate {
        get throws { try certificate(pem: TestCertificates.authority.rootPEM) }
    }

    static func certificate(pem: String) throws -> SecCertificate {
        let body = pem.split(separator: "\n").filter { !$0.hasPrefix("-") }.joined()
        let der = try #require(Data(base64Encoded: body))
        return try #require(SecCertificateCreateWithData(kCFAllocatorDefault, der as CFData))
    }

    /// Returns the output of `openssl pkcs12 -export`.
    static func archive(_ issued: IssuedCertificate, _ options: [String] = []) throws -> Data {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("cocoa-" + UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let files = try issued.write(to: folder.path)
        let output = folder.appendingPathComponent("identity.p12")
        try run(
            [
                "pkcs12", "-export", "-in", files.certificate, "-inkey", files.key, "-out", output.path, "-passout",
                "pass:" + passphrase,
            ]
                + options)
        return try Data(contentsOf: output)
    }

    /// Returns a private key in the DER encoding of an openssl command.
    static func der(ofKey pem: String, _ command: [String]) throws -> Data {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("cocoa-" + UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let (input, output) = (folder.appendingPathComponent("key.pem"), folder.appendingPathComponent("key.der"))
        try Data(pem.utf8).write(to: input)
        try run(command + ["-in", input.path, "-outform", "DER", "-out", output.path])
        return try Data(contentsOf: output)
    }

    /// Generates a key with an openssl command, and returns its public half as a SubjectPublicKeyInfo.
    static func publicKey(_ command: [String]) throws -> Data {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("cocoa-" + UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let key = folder.appendingPathComponent("key.pem")
        try run(command + ["-out", key.path])
        return try der(ofKey: String(decoding: Data(contentsOf: key), as: UTF8.self), ["pkey", "-pubout"])
    }

    private static func run(_ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
        process.arguments = arguments
        process.standardInput = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
    }
}

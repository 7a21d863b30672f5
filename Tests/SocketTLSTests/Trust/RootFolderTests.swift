import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

@Suite final class RootFolderTests {
    private let folder = NSTemporaryDirectory() + "SocketTLSTests-roots-\(UInt64.random(in: 0...UInt64.max))"
    private var fixture: Fixture

    init() throws {
        fixture = try Fixture()
        fixture.client.trustRoots = .folder(path: folder)
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    private func write(_ text: String, _ name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: "\(folder)/\(name)"))
    }

    @Test(arguments: ["root.pem", "root.CRT", "root.cer", "0a1b2c3d.0"])
    func theRootsOfAFolderAreTrusted(name: String) throws {
        try write(Fixture.stranger.rootPEM, "another.pem")
        try write("no certificate", "notes.pem")
        try write(fixture.authority.rootPEM, name)
        #expect(try fixture.clientError() == nil)
    }

    @Test func aRootInDERIsTrusted() throws {
        let der = try TLSCertificate(pem: fixture.authority.rootPEM).derBytes
        try Data(der).write(to: URL(fileURLWithPath: "\(folder)/root.crt"))
        #expect(try fixture.clientError() == nil)
    }

    @Test(arguments: ["root.txt", ".pem", "0a1b2c3d.r0", "root.pem~"])
    func otherFilesAreNotRead(name: String) throws {
        try write(Fixture.stranger.rootPEM, "another.pem")
        try write(fixture.authority.rootPEM, name)
        #expect(try fixture.clientError()?.code == .unknownIssuer)
    }

    @Test func aHashedFolderHasEachRootOnce() throws {
        try write(fixture.authority.rootPEM, "root.pem")
        try FileManager.default.createSymbolicLink(atPath: "\(folder)/0a1b2c3d.0", withDestinationPath: "root.pem")
        #expect(try fixture.clientError() == nil)
        try fixture.askForClientCertificate(.optional)
        fixture.server.trustRoots = .folder(path: folder)
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let peer = try RawPeer(.tls13)
        peer.shakeHands(with: server)
        #expect(peer.acceptedIssuers() == ["/CN=Test Root"])
    }

    @Test func aFolderWithoutRootsIsNamed() throws {
        for path in [folder, "/nonexistent/roots"] {
            fixture.client.trustRoots = .folder(path: path)
            let error = thrown { try fixture.clientError() }
            #expect(error?.code == .invalidCertificate)
            #expect(error?.message.contains("\"\(path)\"") == true)
        }
    }

    @Test func aDamagedFileIsNamed() throws {
        try write(fixture.authority.rootPEM, "root.pem")
        try write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "damaged.pem")
        let error = thrown { try fixture.clientError() }
        #expect(error?.code == .invalidCertificate)
        #expect(error?.message.contains("damaged.pem") == true)
    }

    @Test func aChangedFolderIsReadAgain() throws {
        try write(Fixture.stranger.rootPEM, "another.pem")
        #expect(try fixture.clientError()?.code == .unknownIssuer)
        try write(fixture.authority.rootPEM, "root.pem")
        #expect(try fixture.clientError() == nil)
        try write(CertificateAuthority(name: "A longer name").rootPEM, "root.pem")
        #expect(try fixture.clientError()?.code == .unknownIssuer)
    }
}

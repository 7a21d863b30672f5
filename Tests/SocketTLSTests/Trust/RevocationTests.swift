import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

@Suite struct RevocationTests {
    private let chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate)
    private let ofRoot: TemporaryFile

    init() throws {
        chain = try HandmadeCertificate.chain()
        ofRoot = try TemporaryFile(bytes: chain.root.revocationList())
    }

    private func fixture(_ version: TLSProtocolVersion = .tls13, _ files: TemporaryFile...) throws -> Fixture {
        var fixture = try Fixture(version, leaf: chain.leaf, roots: [chain.root])
        fixture.client.values.rules.revocationLists = files.map { .file(path: $0.path) }
        return fixture
    }

    @Test(arguments: versions) func whatNoListNamesIsTrusted(version: TLSProtocolVersion) throws {
        let list = try TemporaryFile(bytes: chain.intermediate.revocationList())
        #expect(try fixture(version, ofRoot, list).clientError() == nil)
    }

    @Test(arguments: versions) func aRevokedCertificateIsRefused(version: TLSProtocolVersion) throws {
        let list = try TemporaryFile(bytes: chain.intermediate.revocationList(of: [chain.leaf]))
        let pair = try fixture(version, ofRoot, list).pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .certificateRevoked)
        #expect(pair.clientError?.message == "the certificate of \"Server\" was rejected: certificate revoked")
        #expect(pair.serverError?.alert == .certificateRevoked)
    }

    @Test func aRevokedIntermediateCountsOnlyForTheWholeChain() throws {
        let list = try TemporaryFile(bytes: chain.intermediate.revocationList())
        let upper = try TemporaryFile(bytes: chain.root.revocationList(of: [chain.intermediate]))
        var fixture = try fixture(.tls13, upper, list)
        #expect(try fixture.clientError()?.code == .certificateRevoked)
        fixture.client.values.rules.revocationScope = .leaf
        #expect(try fixture.clientError() == nil)
    }

    @Test func withoutAListOfItsIssuerACertificateIsRefused() throws {
        #expect(try fixture(.tls13, ofRoot).clientError()?.code == .certificateRejected)
    }

    @Test func aListThatHasExpiredIsOfNoUse() throws {
        let list = try TemporaryFile(bytes: chain.intermediate.revocationList(days: -9 ..< -2))
        let error = try fixture(.tls13, ofRoot, list).clientError()
        #expect(error?.code == .certificateRejected)
        #expect(error?.message.contains("CRL has expired") == true)
    }

    @Test func aListThatSomeoneElseHasSignedIsRefused() throws {
        let forger = try HandmadeCertificate("Intermediate", HandmadeCertificate.authority)
        let list = try TemporaryFile(bytes: forger.revocationList())
        #expect(try fixture(.tls13, ofRoot, list).clientError()?.code == .certificateRejected)
    }

    @Test func aFileMayHaveSeveralListsAndIsReadAgain() throws {
        let upper = try chain.root.revocationListPEM()
        let file = try TemporaryFile(upper + chain.intermediate.revocationListPEM())
        let fixture = try fixture(.tls13, file)
        #expect(try fixture.clientError() == nil)
        try file.replace(with: upper + chain.intermediate.revocationListPEM(of: [chain.leaf]))
        #expect(try fixture.clientError()?.code == .certificateRevoked)
    }

    @Test func aFolderHasAnyNumberOfLists() throws {
        let folder = NSTemporaryDirectory() + "SocketTLSTests-lists-\(UInt64.random(in: 0...UInt64.max))"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        var fixture = try fixture()
        fixture.client.values.rules.revocationLists = [.folder(path: folder)]
        let empty = thrown { try fixture.clientError() }
        #expect(empty?.message == "the folder \"\(folder)\" contains no certificate revocation lists")
        try Data(chain.root.revocationList()).write(to: URL(fileURLWithPath: folder + "/root.crl"))
        try Data(chain.intermediate.revocationList()).write(to: URL(fileURLWithPath: folder + "/0a1b2c3d.r0"))
        #expect(try fixture.clientError() == nil)
        try Data(chain.intermediate.revocationList(of: [chain.leaf])).write(to: URL(fileURLWithPath: folder + "/0a1b2c3d.r0"))
        #expect(try fixture.clientError()?.code == .certificateRevoked)
    }

    @Test func aFileWithoutAListIsNamed() throws {
        let certificate = try TemporaryFile(chain.root.certificate.pem)
        let key = try TemporaryFile(bytes: chain.root.certificate.derBytes)
        for path in [certificate.path, key.path, "/nonexistent/list.crl"] {
            var fixture = try fixture()
            fixture.client.values.rules.revocationLists = [.file(path: path)]
            let error = thrown { try fixture.clientError() }
            #expect(error?.code == .invalidCertificate)
            #expect(error?.message.contains(path) == true)
        }
    }

    /// The store with the system's roots is shared by all contexts.
    @Test func theSystemsRootsAreNotChanged() throws {
        var settings = try fixture(.tls13, ofRoot).client
        settings.trustRoots = .system
        let checking = try TLSContext.context(for: settings)
        settings.values.rules.revocationLists = []
        let plain = try TLSContext.context(for: settings)
        #expect(try checking !== plain && TLSContext.context(for: settings) === plain)
        var fixture = try fixture(.tls13, ofRoot)
        fixture.client.values.rules.revocationLists = []
        #expect(try fixture.clientError() == nil)
    }

    @Test(arguments: versions) func aServerRefusesARevokedClient(version: TLSProtocolVersion) throws {
        let client = try HandmadeCertificate("alice", [], signedBy: chain.root)
        var fixture = try Fixture(version)
        fixture.client.identity = try client.identity
        fixture.server.values.clientCertificates = .required
        fixture.server.trustRoots = try .certificates([chain.root.certificate])
        let list = try TemporaryFile(bytes: chain.root.revocationList())
        fixture.server.values.rules.revocationLists = [.file(path: list.path)]
        let accepted = try fixture.pair()
        accepted.shakeHands()
        #expect(accepted.isComplete)
        let longer = try TemporaryFile(bytes: chain.root.revocationList(of: [client]))
        fixture.server.values.rules.revocationLists = [.file(path: longer.path)]
        let refused = try fixture.pair()
        refused.shakeHands()
        #expect(refused.serverError?.code == .certificateRevoked)
        #expect(refused.serverError?.sentAlert == .certificateRevoked)
    }
}

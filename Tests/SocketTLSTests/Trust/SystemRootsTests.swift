import AsyncSocketsTesting
import COpenSSL
import Glibc
import SocketTLS
import Testing

@Suite struct SystemRootsTests {
    /// Needs a separate process, because the environment is shared by all tests.
    @Test func theSystemsRootsFollowTheEnvironmentAndTheirFile() async {
        await #expect(processExitsWith: .success) {
            var fixture = try Fixture()
            fixture.client.trustRoots = .system
            let file = try TemporaryFile(fixture.authority.rootPEM)
            setenv("SSL_CERT_FILE", file.path, 1)
            let first = try TLSContext.context(for: fixture.client)
            #expect(try TLSContext.context(for: fixture.client) === first)
            let trusted = try fixture.pair()
            trusted.shakeHands()
            #expect(trusted.isComplete)

            try file.replace(with: CertificateAuthority(name: "Somebody else, and longer").rootPEM)
            #expect(try TLSContext.context(for: fixture.client) !== first)
            let untrusted = try fixture.pair()
            untrusted.shakeHands()
            #expect(untrusted.clientError?.code == .unknownIssuer)
        }
    }

    /// Also in a separate process. One client's lists must not affect the next one.
    @Test func theSystemsRootsHaveNoListsOfOthers() async {
        await #expect(processExitsWith: .success) {
            let chain = try HandmadeCertificate.chain()
            let roots = try TemporaryFile(MemoryBIO.text { PEM_write_bio_X509($0, chain.root.x509) } ?? "")
            setenv("SSL_CERT_FILE", roots.path, 1)
            var fixture = try Fixture(leaf: chain.leaf, roots: [])
            fixture.client.trustRoots = .system
            #expect(try fixture.clientError() == nil)
            let lists = try [chain.root, chain.intermediate].map { try TemporaryFile(bytes: $0.revocationList()) }
            fixture.client.values.rules.revocationLists = lists.map { .file(path: $0.path) }
            #expect(try fixture.clientError() == nil)
            fixture.client.values.rules.revocationLists.removeLast()
            #expect(try fixture.clientError()?.code == .certificateRejected)
        }
    }
}

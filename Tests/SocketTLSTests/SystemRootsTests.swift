import AsyncSocketsTesting
import Glibc
import SocketTLS
import Testing

@Suite struct SystemRootsTests {
    /// This needs a process of its own: the environment belongs to all tests.
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
}

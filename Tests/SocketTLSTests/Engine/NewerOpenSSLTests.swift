import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import Testing

@testable import SocketTLS

/// Differences on the wire that depend on the loaded OpenSSL, not on the headers used for the build.
@Suite struct NewerOpenSSLTests {
    private static let hasHybrid = OpenSSL_version_num() >= 0x3050_0000

    /// ML-KEM adds a key share of 1,216 bytes.
    @Test func aClientHelloIsLargerWithMLKEM() throws {
        let client = try Fixture().engine(.client)
        _ = client.handshake()
        let sizes = Self.hasHybrid ? 1_440..<1_520 : 200..<280
        #expect(sizes.contains(client.output.count), "\(client.output.count)")
    }

    /// A HelloRetryRequest, which costs a round trip.
    @Test func aClientThatListsTheHybridWithoutAShareIsAskedForOne() throws {
        guard Self.hasHybrid else { return }
        for (groups, hellos) in [(["x25519", "X25519MLKEM768"], 2), (["x25519"], 1)] {
            var fixture = try Fixture(.tls13)
            fixture.client.policy.groups = groups
            let pair = try fixture.pair()
            pair.shakeHands()
            #expect(pair.isComplete && pair.client.session?.group == groups.last)
            #expect(pair.client.facts.serverHelloCount == hellos)
        }
    }
}

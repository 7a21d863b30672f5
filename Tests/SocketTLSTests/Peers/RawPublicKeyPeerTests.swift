import AsyncSocketsTesting
import COpenSSL
import Glibc
import Testing

@testable import SocketTLS

/// Raw public keys that our own engine would not send.
@Suite struct RawPublicKeyPeerTests {
    /// Makes `peer` send its key without the certificate. The headers may lack the function.
    private func showRawKey(of peer: RawPeer) throws {
        typealias SetTypes = @convention(c) (OpaquePointer?, UnsafePointer<UInt8>?, Int) -> Int32
        let function = try #require(dlsym(nil, "SSL_set1_server_cert_type"))
        #expect(unsafeBitCast(function, to: SetTypes.self)(peer.ssl, [2], 1) == 1)
    }

    private func handshake(_ version: TLSProtocolVersion, _ key: ForgedKey, _ mode: TLSTrustEvaluation) throws -> TLSError? {
        var fixture = try Fixture(version)
        fixture.client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [RawPublicKeyFixture.otherKey]))
        fixture.client.trustEvaluation = mode
        let (client, peer) = try fixture.clientAndServer(version)
        try showRawKey(of: peer)
        try peer.show(ForgedCertificate(key, signer: ForgedKey(curve: "P-256")), chain: [])
        peer.shakeHands(with: client)
        #expect(!client.isAwaitingTrust && client.session == nil)
        return client.handshake().error
    }

    private func isSupported() throws -> Bool { try RawPublicKeyFixture().isSupported() }

    /// Decoding such a key can take a fifth of a second.
    @Test(arguments: versions) func aKeyOnADescribedCurveIsRefused(_ version: TLSProtocolVersion) throws {
        guard try isSupported() else { return }
        for mode in [TLSTrustEvaluation.builtIn, .manual] {
            let error = try handshake(version, ForgedKey(curve: "P-256", describesItsCurve: true), mode)
            #expect(error?.code == .certificateTooLarge && error?.message.contains("unnamed curve") == true)
            #expect(error?.sentAlert != nil)
        }
    }

    /// Verifying a signature with such a key can take a second.
    @Test(arguments: versions) func anExpensiveKeyIsRefusedBeforeItIsUsed(_ version: TLSProtocolVersion) throws {
        guard try isSupported() else { return }
        let error = try handshake(version, ForgedKey(rsaBits: 2048, exponentBits: 2000), .manual)
        #expect(error?.code == .rawPublicKeyMismatch && error?.sentAlert == .certificateUnknown)
    }
}

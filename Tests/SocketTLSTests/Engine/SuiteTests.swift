import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Cipher suites that are negotiated, and those that never are.
@Suite(.ownThreads) struct SuiteTests {
    static let weak = [
        "AES128-SHA", "AES256-GCM-SHA384", "AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384",
        "ECDHE-ECDSA-AES128-CCM", "AECDH-AES128-SHA", "ECDHE-ECDSA-NULL-SHA",
    ]

    /// One certificate per key type, shared by all tests, because generating an RSA key takes a second.
    private static let certificates = Result {
        let authority = try CertificateAuthority()
        let issued = try CertificateAuthority.KeyType.allCases.map { keyType in
            (keyType, try authority.issue(.server(names: [Fixture.host]), keyType: keyType, signedBy: .root))
        }
        return Dictionary(uniqueKeysWithValues: issued)
    }

    private static func certificate(_ keyType: CertificateAuthority.KeyType) throws -> IssuedCertificate {
        try #require(try certificates.get()[keyType])
    }

    /// Returns one of our servers with a certificate of this key type.
    private func server(_ keyType: CertificateAuthority.KeyType) throws -> TLSEngine {
        var fixture = try Fixture(.tls12)
        fixture.server.identity = try Self.certificate(keyType).identity()
        return try fixture.engine(.server)
    }

    @Test(arguments: weak, CertificateAuthority.KeyType.allCases)
    func aServerRefusesAWeakSuite(suite: String, keyType: CertificateAuthority.KeyType) throws {
        let server = try server(keyType)
        let peer = try RawPeer(.tls12)
        try peer.offer(ciphers: suite + ":@SECLEVEL=0")
        peer.shakeHands(with: server)
        #expect(server.handshake().error?.code == .noSharedParameters)
    }

    @Test(arguments: weak, CertificateAuthority.KeyType.allCases)
    func aClientRefusesAWeakSuite(suite: String, keyType: CertificateAuthority.KeyType) throws {
        var fixture = try Fixture(.tls12)
        fixture.client.trustEvaluation = .manual
        let client = try fixture.engine(.client)
        let peer = try RawPeer(.tls12, serverPEM: Self.certificate(keyType).pem)
        try peer.offer(ciphers: suite + ":@SECLEVEL=0")
        peer.shakeHands(with: client)
        #expect(client.handshake().error?.alert == .handshakeFailure)
    }

    @Test(arguments: versions)
    func theOrderIsTheServers(version: TLSProtocolVersion) throws {
        let server = try Fixture(version).engine(.server)
        let peer = try RawPeer(version)
        try peer.offer(ciphers: "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
        try peer.offer(ciphersuites: "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384")
        peer.shakeHands(with: server)
        #expect(peer.cipher == (version == .tls12 ? "ECDHE-ECDSA-AES256-GCM-SHA384" : "TLS_AES_256_GCM_SHA384"))
    }

    /// A machine without AES instructions prefers it.
    @Test(arguments: versions)
    func aClientThatPrefersChaChaGetsIt(version: TLSProtocolVersion) throws {
        let server = try Fixture(version).engine(.server)
        let peer = try RawPeer(version)
        try peer.offer(ciphers: "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384")
        try peer.offer(ciphersuites: "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384")
        peer.shakeHands(with: server)
        #expect(peer.cipher == (version == .tls12 ? "ECDHE-ECDSA-CHACHA20-POLY1305" : "TLS_CHACHA20_POLY1305_SHA256"))
    }

    @Test func aClientOffersNoOther() throws {
        let client = try Fixture(.tls12).engine(.client)
        _ = client.handshake()
        let hello = Array(client.output.readableBytes)
        let start = 43 + 1 + Int(hello[43])
        let length = Int(hello[start]) << 8 | Int(hello[start + 1])
        let numbers = stride(from: start + 2, to: start + 2 + length, by: 2).map { Int(hello[$0]) << 8 | Int(hello[$0 + 1]) }
        // Six suites with ECDHE. OpenSSL 3.0 adds the signaling value of RFC 5746; 3.5 sends the extension
        // instead.
        let signal = 0x00FF
        #expect(numbers.filter { $0 != signal } == [0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0xC02B, 0xC02F])
    }
}

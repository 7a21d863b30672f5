import AsyncSocketsTesting
import COpenSSL
import Glibc
import Testing

@testable import SocketTLS

/// A connection is established when its trust gate has accepted the peer, not when OpenSSL completes the
/// handshake.
@Suite struct EstablishmentTests {
    /// A context whose cipher suites were changed later, so that it would accept a server without a
    /// certificate.
    @Test(arguments: [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func aServerWithoutACertificateIsNotEstablished(evaluation: TLSTrustEvaluation) throws {
        var fixture = try Fixture(.tls12)
        fixture.client.trustEvaluation = evaluation
        let context = try TLSContext(for: fixture.client, ticketClock: { 0 })
        try #require(SSL_CTX_set_cipher_list(context.handle.context, "aNULL:@SECLEVEL=0") == 1)
        let client = try TLSEngine(context: context, settings: fixture.client)
        let peer = try RawPeer(.tls12, serverPEM: fixture.authority.issue(.server(names: ["a"]), signedBy: .root).pem)
        try peer.offer(ciphers: "AECDH-AES256-SHA:@SECLEVEL=0")
        peer.shakeHands(with: client)
        #expect(SSL_is_init_finished(peer.ssl) == 1)
        #expect(client.handshake().error?.code == .certificateRejected)
        #expect(client.session == nil)
        #expect(client.write("x").error?.code == .certificateRejected)
        #expect(client.handshake().error?.sentAlert == .decodeError)
        #expect(peer.read() == nil && peer.lastAlert() == TLSAlert.decodeError.rawValue)
    }

    @Test func onlyAnAcceptedPeerIsAdmitted() {
        let trust = PeerTrust(chain: [])
        var gate = TrustGate(.manual)
        #expect(gate.admits(isOptional: true))
        #expect(!gate.admits(isOptional: false))
        _ = gate.judge(trust)
        #expect(!gate.admits(isOptional: true))
        _ = gate.takeQuestion()
        #expect(!gate.admits(isOptional: true))
        _ = gate.decide(true, .rejected)
        #expect(gate.admits(isOptional: false))
        var refused = TrustGate(.manual)
        #expect(refused.refuse(trust) == .refuse)
        #expect(refused.refusal == .byExcess(trust))
        #expect(!refused.admits(isOptional: true))
    }
}

/// Keys are wiped before their memory is freed.
@Suite struct SecretBytesTests {
    /// The test reads through the kernel, because the memory may now be reused or unmapped.
    private static func memory(at address: UInt, count: Int) -> [UInt8] {
        guard let file = fopen("/proc/self/mem", "r") else { return [] }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: count)
        let read = pread(fileno(file), &bytes, count, off_t(address))
        return Array(bytes.prefix(max(0, read)))
    }

    @Test func aSecretIsGoneWithItsOwner() throws {
        let text = String((0..<4096).map { _ in Character(UnicodeScalar(UInt8.random(in: 97...122))) })
        var secret: SecretBytes? = SecretBytes(text)
        let address = UInt(bitPattern: try #require(secret?.keptBytes.baseAddress))
        #expect(Self.memory(at: address, count: 4096) == Array(text.utf8))
        secret = nil
        // The allocator writes only to the start of free memory.
        let rest = Self.memory(at: address, count: 4096)
        let survivors = zip(rest, text.utf8).filter { $0 == $1 }.count
        #expect(survivors < 1024, "\(survivors) of 4096 bytes are still there")
    }
}

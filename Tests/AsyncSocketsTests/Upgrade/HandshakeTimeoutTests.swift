import AsyncSockets
import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

/// When a handshake times out, the peer receives an alert before the FIN.
@Suite(.timeLimit(.patient)) struct HandshakeTimeoutTests {
    /// user_canceled, then close_notify (RFC 8446, 6.1), both as plaintext warnings.
    private static let goodbye: [UInt8] = [21, 3, 3, 0, 2, 1, 90, 21, 3, 3, 0, 2, 1, 0]

    @Test func aClientTellsAServerThatDoesNotAnswer() async throws {
        let peer = try ScriptedPeer.listening([
            .expect(through: String(decoding: Self.goodbye, as: UTF8.self)), .expectEnd, .finish,
        ])
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .seconds(0.1)
        try client.beginTLS(settings: settings)
        try await recorder.connected()
        let error = try await recorder.disconnected()
        #expect(error?.code == .handshakeTimeout)
        _ = try await peer.finish()
    }

    @Test func aServerTellsAClientThatSendsHalfAHello() async throws {
        var settings = try TestCertificates.server()
        settings.handshakeTimeout = .seconds(0.1)
        let impatient = settings
        let recorder = Recorder { _, told in
            if case .accepted(let socket) = told { #expect(throws: Never.self) { try socket.beginTLS(settings: impatient) } }
        }
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(
            toPort: listener.localPort,
            [.send([22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]), .expect(Self.goodbye), .expectEnd, .finish])
        _ = try await peer.finish()
        _ = try await recorder.accepted()
        let error = try await recorder.disconnected()
        #expect(error?.code == .handshakeTimeout)
        withExtendedLifetime(listener) {}
    }
}

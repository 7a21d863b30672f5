import AsyncSocketsTesting
import SocketTLS
import Testing

/// Extension numbers for private use (RFC 8446, 11) are not registered. A peer may send the one used
/// internally to reject a client of a TLS 1.3 server, or the next one, without any effect.
@Suite struct PrivateExtensionTests {
    static let numbers: [UInt32] = [0xFF5A, 0xFF5B]

    @Test(arguments: versions, numbers)
    func aClientMaySendOne(version: TLSProtocolVersion, number: UInt32) throws {
        let fixture = try Fixture(version)
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let peer = try RawPeer(version, customExtension: number)
        peer.shakeHands(with: server)
        let answer = server.handshake()
        #expect(answer.isComplete, "\(answer)")
        peer.send("hello")
        peer.carryTo(server)
        #expect(server.readAll().text == "hello")
    }

    @Test(arguments: numbers)
    func aServerMaySendOneWithItsCertificateRequest(number: UInt32) throws {
        let fixture = try Fixture(.tls13)
        let client = try TLSEngine(context: TLSContext.context(for: fixture.client), settings: fixture.client)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        let peer = try RawPeer(.tls13, serverPEM: issued.pem, customExtension: number)
        peer.askForCertificate()
        peer.shakeHands(with: client)
        let answer = client.handshake()
        #expect(answer.isComplete, "\(answer)")
    }

    /// The rejection itself still works with a client that sends this extension.
    @Test func aRefusedClientThatSendsOneIsTold() throws {
        var fixture = try Fixture(.tls13)
        try fixture.askForClientCertificate()
        fixture.server.trustEvaluation = .delegate
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let issued = try fixture.authority.issue(.client(commonName: "mallory"), signedBy: .root)
        let peer = try RawPeer(.tls13, clientPEM: issued.pem, customExtension: 0xFF5A)
        peer.shakeHands(with: server)
        try #require(server.isAwaitingTrust)
        server.decideTrust(false)
        #expect(server.handshake().error?.sentAlert == .badCertificate)
        peer.carryFrom(server)
        #expect(peer.read() == nil)
        #expect(peer.lastAlert() == TLSAlert.badCertificate.rawValue)
    }
}

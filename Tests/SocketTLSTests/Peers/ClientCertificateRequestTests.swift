import AsyncSocketsTesting
import SocketTLS
import Testing

/// What a client learns about the certificate that a server requests.
@Suite struct ClientCertificateRequestTests {
    @Test(arguments: versions) func theSessionContainsTheRequest(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        let silent = try fixture.pair()
        silent.shakeHands()
        #expect(silent.isComplete && silent.client.session?.clientCertificateRequest == nil)
        try fixture.askForClientCertificate(.optional)
        let pair = try fixture.pair()
        pair.shakeHands()
        let root = try TLSCertificate(pem: fixture.authority.rootPEM)
        #expect(pair.client.session?.clientCertificateRequest == TLSClientCertificateRequest(authorities: [root.subject]))
        #expect(pair.server.session != nil && pair.server.session?.clientCertificateRequest == nil)
    }

    /// In TLS 1.3, the client's handshake is complete before the server's decision.
    @Test func theErrorContainsTheRequest() throws {
        var fixture = try Fixture(.tls12)
        try fixture.askForClientCertificate(.required)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .peerAlert)
        #expect(pair.clientError?.clientCertificateRequest?.authorities.count == 1)
        #expect(pair.serverError?.clientCertificateRequest == nil)
    }

    @Test(arguments: versions) func aFailureBeforeTheRequestContainsNone(version: TLSProtocolVersion) throws {
        let fixture = try Fixture(version, serverName: "other.example.org")
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
        #expect(pair.clientError?.clientCertificateRequest == nil)
    }
}

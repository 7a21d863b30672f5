import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

/// The descriptions of errors, and the errors that users' tests can create.
@Suite struct ErrorTests {
    private func count(_ part: String, in text: String) -> Int {
        text.components(separatedBy: part).count - 1
    }

    @Test func theDescriptionHasEachPartOnce() throws {
        let error = TLSError(
            .certificateExpired, "The certificate is old.", operation: "SSL_do_handshake", sentAlert: .certificateExpired,
            verifyCode: 10, openSSLStack: ["certificate verify failed", "certificate verify failed"])
        #expect(
            error.description
                == "The certificate is old. [certificateExpired, fault: certificate; SSL_do_handshake; "
                + "sent alert certificate_expired (45); verification result 10; certificate verify failed]")
    }

    @Test(arguments: versions)
    func aReceivedAlertIsNamedOnce(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = try Fixture.stranger.roots
        let pair = try fixture.pair()
        pair.shakeHands()
        let client = try #require(pair.clientError)
        #expect(client.verifyCode != nil)
        #expect(count("sent alert unknown_ca (48)", in: client.description) == 1)
        #expect(count("verification result", in: client.description) == 1)
        for reason in client.openSSLStack { #expect(count(reason, in: client.description) == 1) }
        let server = try #require(pair.serverError)
        #expect(count("unknown_ca (48)", in: server.description) == 1)
        for reason in server.openSSLStack { #expect(count(reason, in: server.description) == 1) }
    }

    @Test func openSSLsReasonIsSaidOnceWhenTheMessageHasIt() throws {
        let pair = try Fixture().pair()
        pair.shakeHands()
        pair.server.receive("QUIT\r\nQUIT\r\nQUIT\r\n")
        let error = try #require(pair.server.readAll().end.error)
        let reason = try #require(error.openSSLStack.last)
        #expect(error.message.contains(reason))
        #expect(count(reason, in: error.description) == 1)
    }

    @Test func theLocalizedDescriptionIsTheDescription() {
        let error: any Error = TLSError(.truncated, "the peer closed the connection")
        #expect(error.localizedDescription == "\(error)")
        #expect(error.localizedDescription.contains("the peer closed the connection"))
    }

    @Test func usersCanMakeWhatTheirTestsNeed() throws {
        let certificate = try TLSCertificate(pem: CertificateAuthority().rootPEM)
        let trust = PeerTrust(chain: [certificate], serverName: "a")
        #expect(trust.leaf == certificate)
        #expect((trust.peer, trust.serverName) == (.server, "a"))
        #expect(trust.verdict == .trusted)
        let session = TLSSession(applicationProtocol: "h2", peerCertificates: [certificate])
        #expect((session.protocolVersion, session.applicationProtocol) == (.tls13, "h2"))
        #expect(!session.isResumed && session.serverName == nil)
        let error = TLSError(.peerAlert, "no", alert: .accessDenied)
        #expect((error.code, error.fault, error.alert) == (.peerAlert, .peer, .accessDenied))
    }
}

import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

/// The textual descriptions of a session, for people and for programs.
@Suite struct SessionTextTests {
    private func session(_ fixture: Fixture, _ change: (EnginePair) -> Void = { _ in }) throws -> (TLSSession, TLSSession) {
        let pair = try fixture.pair()
        change(pair)
        pair.shakeHands()
        return (try #require(pair.client.session), try #require(pair.server.session))
    }

    @Test func aLineForPeopleHasAllThatIsThere() throws {
        var fixture = try Fixture()
        fixture.client.applicationProtocols = ["imap"]
        fixture.server.applicationProtocols = ["imap"]
        let (client, server) = try session(fixture)
        let group = try #require(client.group)
        #expect("\(client)" == "TLSv1.3, TLS_AES_256_GCM_SHA384, \(group), ALPN imap, peer mail.example.org")
        #expect("\(server)" == "TLSv1.3, TLS_AES_256_GCM_SHA384, \(group), ALPN imap")
        let resumed = TLSSession(protocolVersion: .tls12, cipherSuite: "X", group: nil, isResumed: true)
        #expect("\(resumed)" == "TLSv1.2, X, resumed")
    }

    private func object(_ session: TLSSession) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(session.json.utf8)) as? [String: Any])
    }

    @Test func programsReadAnObjectWithStableKeys() throws {
        let (client, _) = try session(Fixture(.tls12))
        let object = try object(client)
        #expect(object["version"] as? String == "TLSv1.2" && object["cipherSuite"] as? String == client.cipherSuite)
        #expect(object["group"] as? String == client.group && object["isResumed"] as? Bool == false)
        #expect(object["serverName"] as? String == Fixture.host && object["peerName"] as? String == Fixture.host)
        #expect(object["applicationProtocol"] is NSNull)
        #expect(object["peerSignatureAlgorithm"] as? String == "ECDSA-SHA256")
        let digits = client.peerCertificates.first?.sha256Fingerprint.map { String(format: "%02x", $0) }.joined()
        #expect(object["peerFingerprint"] as? String == digits)
        #expect(
            TLSSession(group: nil, isResumed: true).json
                == #"{"version":"TLSv1.3","cipherSuite":"TLS_AES_256_GCM_SHA384","group":null,"applicationProtocol":null,"#
                + #""serverName":null,"isResumed":true,"peerName":null,"peerFingerprint":null,"peerSignatureAlgorithm":null,"#
                + #""preSharedKeyIdentity":null,"peerPublicKey":null}"#)
    }

    /// Parts of the text are chosen by the peer.
    @Test(arguments: ["\"", "\\", "\n\u{0}\u{1F}\u{7F}", "\u{2028}\u{2029}", "é 😀", "\",\"version\":\"x"])
    func oddTextStaysInItsPlace(_ text: String) throws {
        let session = TLSSession(applicationProtocol: text, serverName: text, preSharedKeyIdentity: Array(text.utf8))
        let object = try object(session)
        #expect(object["applicationProtocol"] as? String == text && object["serverName"] as? String == text)
        #expect(object["preSharedKeyIdentity"] as? String == text)
        #expect(object["version"] as? String == "TLSv1.3" && object.count == 11)
        #expect(!session.json.contains("\n") && !session.description.contains("\n"))
    }

    // MARK: - The signature of the handshake

    @Test(arguments: versions) func theSignatureIsNamed(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .manual
        for (identity, name) in [
            (try TLSIdentity.selfSigned(.ed25519), "Ed25519"), (try .selfSigned(.sha256), "RSA-PSS-SHA256"),
            (try fixture.authority.identity(.server(names: [Fixture.host])), "ECDSA-SHA256"),
        ] {
            fixture.server.identity = identity
            let (client, server) = try session(fixture) { $0.decideClientTrust = { _ in true } }
            #expect(client.peerSignatureAlgorithm == name && server.peerSignatureAlgorithm == nil)
        }
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        let (_, server) = try session(fixture) { $0.decideClientTrust = { _ in true } }
        #expect(server.peerSignatureAlgorithm == "ECDSA-SHA256")
    }

    @Test func aResumedSessionHasNoSignature() throws {
        var fixture = try Fixture()
        fixture.server.values.tickets = .issued(1)
        let first = try fixture.pair()
        first.shakeHands()
        _ = try first.exchange([1], from: .server)
        fixture.client.resumption = .session(try #require(first.client.session?.resumable))
        let (client, _) = try session(fixture)
        #expect(client.isResumed && client.peerSignatureAlgorithm == nil && "\(client)".contains(", resumed, peer "))
    }
}

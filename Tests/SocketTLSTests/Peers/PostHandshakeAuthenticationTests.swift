import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Clients that send their certificate when the server requests it after the handshake (RFC 8446, 4.6.2).
@Suite(.ownThreads) struct PostHandshakeAuthenticationTests {
    private var fixture: Fixture

    init() throws {
        fixture = try Fixture(.tls13)
    }

    /// Returns one of our clients and a bare server after the handshake.
    private func connected(_ settings: TLSClientSettings, defersWork: Bool = false) throws -> (client: TLSEngine, server: RawPeer)
    {
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        let server = try RawPeer(.tls13, serverPEM: issued.pem)
        SSL_set_verify(server.ssl, SSL_VERIFY_PEER | SSL_VERIFY_POST_HANDSHAKE, { _, _ in 1 })
        // OpenSSL continues after a certificate only if a session ID context is set.
        SSL_set_session_id_context(server.ssl, [1], 1)
        let client = try TLSEngine(
            context: TLSContext.context(for: settings), settings: settings, defersWork: defersWork)
        server.shakeHands(with: client)
        guard client.handshake().isComplete else { throw TestFailure(what: "handshake") }
        return (client, server)
    }

    /// Requests a certificate. Returns whether the server could do so.
    private func ask(_ client: TLSEngine, _ server: RawPeer) -> Bool {
        ERR_clear_error()
        guard SSL_verify_client_post_handshake(server.ssl) == 1 else { return false }
        SSL_do_handshake(server.ssl)
        server.carryTo(client)
        return true
    }

    @Test func aServerCannotAskByDefault() throws {
        #expect(!fixture.client.allowsPostHandshakeAuthentication)
        let (client, server) = try connected(fixture.client)
        #expect(!ask(client, server))
        #expect(Int32(ERR_GET_REASON(ERR_peek_last_error())) == SSL_R_EXTENSION_NOT_RECEIVED)
        ERR_clear_error()
    }

    @Test(arguments: [true, false]) func aClientShowsWhatItHas(hasCertificate: Bool) throws {
        var settings = fixture.client
        settings.allowsPostHandshakeAuthentication = true
        if hasCertificate { settings.identity = try fixture.authority.identity(.client(commonName: "alice")) }
        let (client, server) = try connected(settings)
        #expect(SSL_get0_peer_certificate(server.ssl) == nil)
        for round in 0..<3 {
            let isAsked = ask(client, server)
            #expect(isAsked)
            server.send("hello \(round)")
            server.carryTo(client)
            // The response is created while the client reads.
            #expect(client.readAll().text == "hello \(round)")
            #expect(client.output.count > (hasCertificate ? 300 : 50))
            _ = client.write("data \(round)")
            server.carryFrom(client)
            #expect(server.read() == "data \(round)")
            #expect((SSL_get0_peer_certificate(server.ssl) != nil) == hasCertificate)
        }
    }

    /// Work is no longer moved to another thread.
    @Test func aSlowKeySignsWhereTheClientReads() throws {
        var settings = fixture.client
        settings.allowsPostHandshakeAuthentication = true
        settings.identity = try fixture.authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity()
        let (client, server) = try connected(settings, defersWork: true)
        let isAsked = ask(client, server)
        #expect(isAsked)
        #expect(client.readAll().text == "")
        _ = client.write("data")
        server.carryFrom(client)
        #expect(server.read() == "data" && SSL_get0_peer_certificate(server.ssl) != nil)
    }

    @Test func aServerMayRefuseWhatItGets() throws {
        var settings = fixture.client
        settings.allowsPostHandshakeAuthentication = true
        let (client, server) = try connected(settings)
        let mode = SSL_VERIFY_PEER | SSL_VERIFY_POST_HANDSHAKE | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
        SSL_set_verify(server.ssl, mode, nil)
        let isAsked = ask(client, server)
        #expect(isAsked && client.readAll().end.isIncomplete)
        server.carryFrom(client)
        #expect(server.read() == nil)
        server.carryTo(client)
        #expect(client.readAll().end.error?.alert == .certificateRequired)
    }

    // MARK: - More than fits in the output

    /// Returns a chain of more than 600,000 bytes, of which only the first certificate matters.
    private func longChain(_ purpose: CertificateAuthority.Purpose) throws -> TLSIdentity {
        let leaf = try fixture.authority.identity(purpose)
        let names = (0..<300).map { "host-\($0).a-rather-long-name.example.org" }
        let other = try fixture.authority.identity(.server(names: names)).certificateChain[0]
        let chain = leaf.certificateChain + Array(repeating: other, count: 60)
        try #require(chain.reduce(0) { $0 + $1.derBytes.count } > 600_000)
        return try TLSIdentity(certificateChain: chain, privateKey: leaf.privateKey)
    }

    private func takingLongChains<Side>(_ settings: TLSSettings<Side>) -> TLSSettings<Side> {
        var settings = settings
        (settings.maximumCertificateChainBytes, settings.maximumCertificateChainLength) = (1_048_576, 100)
        return settings
    }

    @Test(arguments: versions) func aHandshakeGoesOnWhenItsBeginningHasLeft(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        (fixture.client.trustRoots, fixture.server.identity) = (
            try self.fixture.authority.roots, try longChain(.server(names: [Fixture.host]))
        )
        let pair = try EnginePair(takingLongChains(fixture.client), fixture.server)
        pair.shakeHands()
        #expect(pair.isComplete && pair.client.session?.peerCertificates.count == 61, "\(String(describing: pair.clientError))")
    }

    /// OpenSSL stops in the middle of the client's response, and reading continues it.
    @Test func anAnswerGoesOnWhenItsBeginningHasLeft() throws {
        var fixture = fixture
        fixture.client.allowsPostHandshakeAuthentication = true
        fixture.client.identity = try longChain(.client(commonName: "alice"))
        fixture.server.clients = .certificatesOnRequest()
        fixture.server.trustRoots = try fixture.authority.roots
        let pair = try EnginePair(fixture.client, takingLongChains(fixture.server))
        pair.shakeHands()
        _ = try pair.server.requestClientCertificate(isRequired: true)
        pair.carryAll()
        #expect(pair.client.readAll().end.isIncomplete && pair.client.output.count >= 512 * 1024)
        pair.carryAll()
        #expect(pair.client.mayHaveAnswer, "the rest of the answer waits for a read")
        #expect(pair.client.readAll().end.isIncomplete && pair.client.hasOutput)
        pair.carryAll()
        #expect(!pair.client.mayHaveAnswer)
        #expect(pair.server.readAll().end.isIncomplete && pair.server.handshake().isComplete)
        #expect(pair.server.session?.peerCertificates.count == 61)
    }
}

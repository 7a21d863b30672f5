import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import Testing

/// Clients that try to bypass the settings of a server name.
@Suite struct NameIsolationTests {
    private let authority: CertificateAuthority

    init() throws {
        authority = try CertificateAuthority(name: "Names")
    }

    private func server(_ name: String) throws -> TLSServerSettings {
        .server(identity: try authority.identity(.server(names: [name])))
    }

    /// "secure.example.org" requires client certificates.
    private func settings(_ evaluation: TLSTrustEvaluation = .builtIn) throws -> TLSServerSettings {
        var asking = try server("secure.example.org")
        asking.values.clientCertificates = .required
        asking.trustRoots = try authority.roots
        var settings = try server("open.example.org")
        settings.trustEvaluation = evaluation
        settings.serverNames = try TLSServerNames(["secure.example.org": asking])
        return settings
    }

    private func engine(_ settings: TLSSettings<some TLSRole.Side>) throws -> TLSEngine {
        try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
    }

    // MARK: - The decision

    @Test(arguments: versions, [TLSTrustEvaluation.delegate, .manual])
    func aNameDoesNotSkipTheDecision(_ version: TLSProtocolVersion, _ evaluation: TLSTrustEvaluation) throws {
        for isAccepted in [true, false] {
            var client = try authority.clientSettings(serverName: "secure.example.org")
            (client.minimumVersion, client.maximumVersion) = (version, version)
            client.identity = try authority.identity(.client(commonName: "alice"))
            let pair = try EnginePair(client, settings(evaluation))
            pair.decideServerTrust = { _ in isAccepted }
            pair.shakeHands()
            #expect(pair.serverQuestions.count == 1 && (pair.server.session != nil) == isAccepted)
        }
    }

    /// The callback that alone decides for the others can only restrict here.
    @Test(arguments: versions) func aManualDecisionDoesNotWidenThatOfAName(_ version: TLSProtocolVersion) throws {
        var client = try authority.clientSettings(serverName: "secure.example.org")
        (client.minimumVersion, client.maximumVersion) = (version, version)
        client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
        let pair = try EnginePair(client, settings(.manual))
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.serverQuestions.isEmpty && pair.serverError?.code == .unknownIssuer)
    }

    // MARK: - The second ClientHello

    /// Connects a client whose key share the server does not support, so that it must send a second
    /// ClientHello (RFC 8446, 4.1.4).
    private func secondHello(
        of settings: TLSServerSettings, changing change: (RawPeer) -> Void
    ) throws -> (peer: RawPeer, server: TLSEngine) {
        var settings = settings
        settings.policy.groups = ["secp384r1"]
        let (peer, server) = (try RawPeer(.tls13), try engine(settings))
        _ = COpenSSL_setServerNameIndication(peer.ssl, "open.example.org")
        SSL_set_alpn_protos(peer.ssl, [2, 0x68, 0x32], 3)
        var groups = Array("X25519:secp384r1".utf8CString)
        try #require(SSL_ctrl(peer.ssl, SSL_CTRL_SET_GROUPS_LIST, 0, &groups) == 1)
        SSL_do_handshake(peer.ssl)
        peer.carryTo(server)
        try #require(server.handshake().isIncomplete && !server.output.isEmpty)
        change(peer)
        peer.carryFrom(server)
        peer.shakeHands(with: server)
        return (peer, server)
    }

    @Test func theSecondHelloMayNotNameAnother() throws {
        let settings = try settings()
        #expect(try secondHello(of: settings) { _ in }.server.session?.serverName == "open.example.org")
        let (peer, server) = try secondHello(of: settings) {
            _ = COpenSSL_setServerNameIndication($0.ssl, "secure.example.org")
        }
        guard case .failed(let error) = server.handshake() else { throw TestFailure(what: "accepted") }
        #expect(error.code == .protocolViolation && error.fault == .peer && error.sentAlert != nil, "\(error)")
        #expect(server.session == nil && peer.alertInHandshake == error.sentAlert)
    }

    @Test func theSecondHelloMayNotOfferOtherProtocols() throws {
        var settings = try settings()
        settings.applicationProtocols = ["h2", "x"]
        #expect(try secondHello(of: settings) { _ in }.server.session?.applicationProtocol == "h2")
        let (_, server) = try secondHello(of: settings) { SSL_set_alpn_protos($0.ssl, [1, 0x78], 2) }
        #expect(server.handshake().error?.code == .protocolViolation)
    }

    /// A key that does not match may be omitted in the second message (RFC 8446, 4.1.2).
    @Test func theSecondHelloMayOfferFewerKeys() {
        let first = TLSClientHello(serverName: "a", applicationProtocols: ["h2"], preSharedKeyIdentities: [[1], [2]])
        #expect(TLSClientHello(serverName: "a", applicationProtocols: ["h2"]).asksForTheSame(as: first))
        #expect(!TLSClientHello(serverName: "b", applicationProtocols: ["h2"]).asksForTheSame(as: first))
        #expect(!TLSClientHello(serverName: "a", applicationProtocols: []).asksForTheSame(as: first))
    }

    // MARK: - Tickets

    @Test(arguments: versions) func theTicketsOfANameAreNotThoseOfTheOthers(_ version: TLSProtocolVersion) throws {
        var named = try server("secure.example.org")
        named.values.tickets = .issued(1)
        var settings = try server("open.example.org")
        settings.serverNames = try TLSServerNames(["secure.example.org": named])
        for (name, count) in [("secure.example.org", 1), ("open.example.org", 0)] {
            let peer = try RawPeer.client(version, of: engine(settings), named: name)
            #expect(peer.tickets == count, "\(name)")
        }
    }

    // MARK: - Unusual names

    /// OpenSSL accepts such names, so they are valid.
    @Test(arguments: versions, ["ümlaut.example.org", "two words", "secure.example.org\u{212A}", "\u{1}"])
    func aNameOutsideASCIIIsUnknown(_ version: TLSProtocolVersion, _ name: String) throws {
        var settings = try settings()
        settings.serverNames = try TLSServerNames(["k.example.org": server("k.example.org")], unknownName: .reject)
        let (peer, server) = (try RawPeer(version), try engine(settings))
        _ = COpenSSL_setServerNameIndication(peer.ssl, name)
        peer.shakeHands(with: server)
        #expect(server.handshake().error?.code == .unrecognizedName)
    }

    /// The Kelvin sign equals K only in a Unicode case-insensitive comparison.
    @Test func lettersThatOnlyLookAlikeAreOthers() throws {
        let names = try TLSServerNames(["k.example.org": server("k.example.org")])
        var settings = try server("default.example.org")
        settings.serverNames = names
        let (peer, server) = (try RawPeer(.tls13), try engine(settings))
        _ = COpenSSL_setServerNameIndication(peer.ssl, "\u{212A}.example.org")
        peer.shakeHands(with: server)
        #expect(server.handshake().isComplete)
        let shown = SSL_get0_peer_certificate(peer.ssl).map {
            String(cString: X509_NAME_oneline(X509_get_subject_name($0), nil, 0))
        }
        #expect(shown?.contains("default.example.org") == true)
    }

    // MARK: - Files

    /// Files in the settings of a name are also reloaded.
    @Test(arguments: versions) func aListOfANameIsReadAgain(_ version: TLSProtocolVersion) throws {
        let root = try HandmadeCertificate("Root", HandmadeCertificate.authority)
        let alice = try HandmadeCertificate(
            "alice",
            [
                (NID_basic_constraints, "critical,CA:FALSE"), (NID_ext_key_usage, "clientAuth"),
                (NID_subject_key_identifier, "hash"), (NID_authority_key_identifier, "keyid:always"),
            ], signedBy: root)
        let list = try TemporaryFile(root.revocationListPEM())
        var asking = try server("secure.example.org")
        asking.values.clientCertificates = .required
        asking.trustRoots = .certificates([try root.certificate])
        asking.values.rules.revocationLists = [.file(path: list.path)]
        var settings = try server("open.example.org")
        settings.serverNames = try TLSServerNames(["secure.example.org": asking])
        var client = try authority.clientSettings(serverName: "secure.example.org")
        (client.minimumVersion, client.maximumVersion) = (version, version)
        client.identity = try alice.identity
        func error() throws -> TLSError? {
            let pair = try EnginePair(client, settings)
            pair.shakeHands()
            #expect(pair.isComplete || pair.serverError != nil)
            return pair.serverError
        }
        #expect(try error() == nil)
        try list.replace(with: root.revocationListPEM(of: [alice]))
        #expect(try error()?.code == .certificateRevoked)
    }

    // MARK: - Tickets

    private final class SharedKeys: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init() throws { keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80))) }
    }

    /// One certificate and one set of settings for both names. A session belongs to the requested name (RFC
    /// 6066, section 3).
    @Test(arguments: versions, [true, false])
    func aSessionIsNotResumedUnderAnotherNameOfTheList(_ version: TLSProtocolVersion, sharesKeys: Bool) throws {
        let certificate = try authority.identity(.server(names: ["a.example.org", "b.example.org"]))
        var shared = TLSSettings.server(identity: certificate)
        shared.sessionTickets = .issued(1, keys: sharesKeys ? try SharedKeys() : nil)
        var settings = shared
        settings.serverNames = try TLSServerNames(["a.example.org": shared, "b.example.org": shared])
        func connect(_ name: String, resuming session: [UInt8]?) throws -> (engine: TLSEngine, session: [UInt8]?) {
            let (peer, server) = (try RawPeer(version), try engine(settings))
            _ = COpenSSL_setServerNameIndication(peer.ssl, name)
            if let session { try peer.resume(session) }
            peer.shakeHands(with: server)
            _ = server.write("x")
            peer.carryFrom(server)
            _ = peer.read()
            #expect(server.session?.serverName?.lowercased() == name.lowercased())
            return (server, try peer.session())
        }
        let first = try connect("a.example.org", resuming: nil)
        #expect(try connect("a.example.org", resuming: first.session).engine.session?.isResumed == true)
        #expect(try connect("b.example.org", resuming: first.session).engine.session?.isResumed == false)
        #expect(try connect("A.EXAMPLE.org", resuming: first.session).engine.session?.isResumed == true)
    }
}

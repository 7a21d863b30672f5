import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import SocketTestSupport
import Testing

/// Servers that choose settings by the requested server name.
@Suite struct ServerNameTests {
    private let authority: CertificateAuthority

    init() throws {
        authority = try CertificateAuthority(name: "Names")
    }

    private func server(_ name: String) throws -> TLSServerSettings {
        .server(identity: try authority.identity(.server(names: [name])))
    }

    /// Returns the common name of the certificate that a client receives.
    private func names(of pair: EnginePair) -> [String]? {
        pair.client.session?.peerCertificates.first?.dnsNames
    }

    private func pair(asking name: String, of server: TLSServerSettings, _ version: TLSProtocolVersion, chunk: Int = .max) throws
        -> EnginePair
    {
        var client = try authority.clientSettings(serverName: name)
        (client.minimumVersion, client.maximumVersion) = (version, version)
        client.verifiesHostName = false
        let pair = try EnginePair(client, server, chunk: chunk)
        pair.shakeHands()
        return pair
    }

    private func settings(unknownName: TLSServerNames.UnknownName = .useDefault) throws -> TLSServerSettings {
        var settings = try server("default.example.org")
        settings.serverNames = try TLSServerNames(
            [
                "mail.example.org": server("mail.example.org"), "*.example.org": server("*.example.org"),
                "*.a.example.org": server("*.a.example.org"), "Example.COM": server("example.com"),
            ], unknownName: unknownName)
        return settings
    }

    @Test(arguments: versions)
    func theNameDecides(_ version: TLSProtocolVersion) throws {
        let settings = try settings()
        let expectations = [
            "mail.example.org": "mail.example.org", "MAIL.example.org": "mail.example.org", "www.example.org": "*.example.org",
            "x.a.example.org": "*.a.example.org", "a.b.example.org": "default.example.org",
            "example.org": "default.example.org", "example.com": "example.com", "other.net": "default.example.org",
            // Addresses are not sent as SNI.
            "192.0.2.1": "default.example.org",
        ]
        for (asked, expected) in expectations {
            let pair = try pair(asking: asked, of: settings, version)
            #expect(pair.isComplete && names(of: pair) == [expected], "\(asked)")
            #expect(pair.server.session?.serverName?.lowercased() == (asked.first == "1" ? nil : asked.lowercased()))
        }
    }

    @Test(arguments: versions, [1, 7, 1000])
    func theFirstMessageMayComeInPieces(_ version: TLSProtocolVersion, _ chunk: Int) throws {
        let pair = try pair(asking: "mail.example.org", of: settings(), version, chunk: chunk)
        #expect(pair.isComplete && names(of: pair) == ["mail.example.org"])
        #expect(try pair.exchange([1, 2, 3], from: .server) == [1, 2, 3])
    }

    @Test(arguments: versions)
    func unknownServerNamesCanBeRejected(_ version: TLSProtocolVersion) throws {
        let settings = try settings(unknownName: .reject)
        let refused = try pair(asking: "other.net", of: settings, version)
        #expect(refused.serverError?.code == .unrecognizedName && refused.serverError?.sentAlert == .unrecognizedName)
        #expect(refused.clientError?.alert == .unrecognizedName)
        #expect(try pair(asking: "mail.example.org", of: settings, version).isComplete)
        let nameless = try pair(asking: "192.0.2.1", of: settings, version)
        #expect(nameless.isComplete && names(of: nameless) == ["default.example.org"])
    }

    // MARK: - Everything follows the choice

    @Test(arguments: versions)
    func verificationAndProtocolsFollowTheName(_ version: TLSProtocolVersion) throws {
        var asking = try server("secure.example.org")
        asking.values.clientCertificates = .required
        asking.trustRoots = try authority.roots
        asking.applicationProtocols = ["secure"]
        var settings = try server("open.example.org")
        settings.applicationProtocols = ["open"]
        settings.serverNames = try TLSServerNames(["secure.example.org": asking])
        func pair(_ name: String, _ identity: TLSIdentity?) throws -> EnginePair {
            var client = try authority.clientSettings(serverName: name)
            (client.minimumVersion, client.maximumVersion, client.identity) = (version, version, identity)
            client.applicationProtocols = ["secure", "open"]
            let pair = try EnginePair(client, settings)
            pair.shakeHands()
            return pair
        }
        let open = try pair("open.example.org", nil)
        #expect(open.isComplete && open.server.session?.applicationProtocol == "open")
        #expect(try pair("secure.example.org", nil).serverError?.code == .clientCertificateMissing)
        let stranger = try Fixture.stranger.identity(.client(commonName: "mallory"))
        #expect(try pair("secure.example.org", stranger).serverError?.code == .unknownIssuer)
        let secure = try pair("secure.example.org", authority.identity(.client(commonName: "alice")))
        #expect(secure.isComplete && secure.server.session?.applicationProtocol == "secure")
        #expect(secure.server.session?.peerCertificates.first?.commonName == "alice")
    }

    @Test func theTrustDecisionFollowsTheName() throws {
        var asking = try server("secure.example.org")
        asking.values.clientCertificates = .required
        asking.trustRoots = try authority.roots
        asking.trustEvaluation = .delegate
        var settings = try server("open.example.org")
        settings.serverNames = try TLSServerNames(["secure.example.org": asking])
        for isAccepted in [true, false] {
            var client = try authority.clientSettings(serverName: "secure.example.org")
            client.identity = try authority.identity(.client(commonName: "alice"))
            let pair = try EnginePair(client, settings)
            pair.decideServerTrust = { _ in isAccepted }
            pair.shakeHands()
            #expect(pair.serverQuestions.count == 1 && (pair.server.session != nil) == isAccepted)
        }
    }

    @Test(arguments: versions) func theTrustRulesFollowTheName(_ version: TLSProtocolVersion) throws {
        let (alice, bob) = (
            try authority.identity(.client(commonName: "alice")), try authority.identity(.client(commonName: "bob"))
        )
        var settings = try server("open.example.org")
        settings.values.clientCertificates = .required
        settings.trustRoots = try authority.roots
        settings.values.rules.pins = [bob.certificateChain[0].publicKeySHA256]
        var pinning = settings
        pinning.values.rules.pins = [alice.certificateChain[0].publicKeySHA256]
        settings.serverNames = try TLSServerNames(["pinned.example.org": pinning])
        for (name, identity, isAccepted) in [
            ("pinned.example.org", alice, true), ("pinned.example.org", bob, false), ("open.example.org", bob, true),
            ("open.example.org", alice, false),
        ] {
            var client = try authority.clientSettings(serverName: name)
            (client.minimumVersion, client.maximumVersion, client.identity) = (version, version, identity)
            client.verifiesHostName = false
            let pair = try EnginePair(client, settings)
            pair.shakeHands()
            #expect(pair.serverError?.code == (isAccepted ? nil : .pinMismatch), "\(name)")
        }
    }

    /// CVE-2025-23419: a session for one name must not be accepted for another one.
    @Test(arguments: versions)
    func noSessionCrossesNames(_ version: TLSProtocolVersion) throws {
        var settings = try server("default.example.org")
        settings.sessionTickets = .issued(1)
        var (one, two) = (try server("one.example.org"), try server("two.example.org"))
        (one.sessionTickets, two.sessionTickets) = (.issued(1), .issued(1))
        settings.serverNames = try TLSServerNames(["one.example.org": one, "two.example.org": two])
        func engine() throws -> TLSEngine { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) }
        let session = try RawPeer.client(version, of: engine(), named: "one.example.org").session()
        for (name, isResumed) in [("one.example.org", true), ("two.example.org", false), ("three.example.org", false)] {
            let server = try engine()
            let peer = try RawPeer.client(version, of: server, resuming: session, named: name)
            #expect(peer.isResumed == isResumed && server.session?.isResumed == isResumed, "\(name)")
        }
    }

    // MARK: - Functions

    private struct Unavailable: Error {}

    @Test(arguments: ["one.example.org", "nobody", "broken"])
    func theServerNameClosureIsCalledOnce(_ name: String) async throws {
        let one = try server("one.example.org")
        let asked = Locked<[TLSClientHello]>([])
        var settings = try server("default.example.org")
        settings.serverNames = TLSServerNames { hello in
            asked.withLock { $0.append(hello) }
            await Task.yield()
            if hello.serverName == "broken" { throw Unavailable() }
            return hello.serverName == "nobody" ? nil : one
        }
        var client = try authority.clientSettings(serverName: name)
        client.applicationProtocols = ["h2", "http/1.1"]
        let server = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        let engine = try TLSEngine(context: TLSContext.context(for: client), settings: client)
        _ = engine.handshake()
        server.receive(Array(engine.output.readableBytes))
        guard case .awaitingSettings(let question) = server.handshake() else { throw TestFailure(what: "no question") }
        guard case .incomplete = server.handshake() else { throw TestFailure(what: "asked twice") }
        server.choose(await question.answer())
        let answer = server.handshake()
        #expect(asked.withLock { $0 } == [TLSClientHello(serverName: name, applicationProtocols: ["h2", "http/1.1"])])
        switch (name, answer) {
        case ("one.example.org", .incomplete): #expect(server.output.count > 500)
        case ("nobody", .failed(let error)): #expect(error.code == .unrecognizedName)
        case ("broken", .failed(let error)): #expect(error.sentAlert == .internalError && error.message.contains("Unavailable"))
        default: Issue.record("\(answer)")
        }
    }

    // MARK: - Invalid input

    @Test(arguments: ["", "192.0.2.1", "a b", "*.", "ümlaut.example"])
    func namesThatNoOneCanAskForAreRefused(_ name: String) throws {
        let settings = try server("example.org")
        #expect(throws: TLSError.self) { try TLSServerNames([name: settings]) }
    }

    @Test func namesAreThereOnceAndHoldNoNames() throws {
        let server = try server("a")
        #expect(throws: TLSError.self) { try TLSServerNames(["A": server, "a": server]) }
        var nested = server
        nested.serverNames = try TLSServerNames(["a": server])
        #expect(throws: TLSError.self) { try TLSServerNames(["b": nested]) }
    }

    /// Bytes that are not a ClientHello fail as without names.
    @Test func nonsenseIsAnsweredAsWithoutNames() throws {
        let (plain, named) = (try server("default.example.org"), try settings())
        let client = try authority.clientSettings(serverName: "mail.example.org")
        let engine = try TLSEngine(context: TLSContext.context(for: client), settings: client)
        _ = engine.handshake()
        let hello = Array(engine.output.readableBytes)
        let seed = Seeds.first("HELLO_SEED")
        var generator = SeededGenerator(seed: seed)
        var inputs: [[UInt8]] = [
            Array("GET / HTTP/1.0\r\n\r\n".utf8), [22, 3, 1, 0, 0], [22, 3, 1, 0xFF, 0xFF, 1], [21, 3, 3, 0, 2, 2, 40],
        ]
        // The headers, the lengths and the start of each field.
        for place in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 43, 44, 76, 77, 78] {
            for value in [0, 1, 0xFF] as [UInt8] where place < hello.count {
                var changed = hello
                changed[place] = value
                inputs.append(changed)
            }
        }
        for _ in 0..<300 {
            var changed = hello
            changed[Int.random(in: 0..<hello.count, using: &generator)] = .random(in: 0...255, using: &generator)
            inputs.append(changed)
        }
        for input in inputs {
            var codes: [TLSError.Code?] = []
            for settings in [plain, named] {
                let server = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
                server.receive(input)
                server.receiveEndOfFile()
                if case .failed(let error) = server.handshake() { codes.append(error.code) } else { codes.append(nil) }
            }
            #expect(codes[0] == codes[1], "HELLO_SEED=\(seed): \(input)")
        }
    }

    /// According to RFC 6066, 3, the name has no trailing dot, but some clients send one.
    @Test(arguments: versions) func aDotAtTheEndDoesNotMatter(_ version: TLSProtocolVersion) throws {
        for (name, shown) in [("mail.example.org.", "mail.example.org"), ("x.A.example.org.", "x.a.example.org")] {
            let settings = try settings(unknownName: .reject)
            let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
            let peer = try RawPeer(version)
            _ = COpenSSL_setServerNameIndication(peer.ssl, name)
            peer.shakeHands(with: engine)
            #expect(SSL_is_init_finished(peer.ssl) == 1)
            #expect(X509_check_host(SSL_get0_peer_certificate(peer.ssl), shown, shown.utf8.count, 0, nil) == 1, "\(name)")
        }
    }

    /// A server that resumes a session must not send server_name (RFC 6066, 3).
    @Test(arguments: versions) func theNameIsAcknowledgedInFullHandshakesAlone(_ version: TLSProtocolVersion) throws {
        var named = try server("mail.example.org")
        named.values.tickets = .issued(1)
        var settings = try server("default.example.org")
        settings.serverNames = try TLSServerNames(["mail.example.org": named])
        func connect(resuming session: [UInt8]?) throws -> (isAcknowledged: Bool, peer: RawPeer) {
            let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
            let peer = try RawPeer(version)
            peer.noteExtensions()
            _ = COpenSSL_setServerNameIndication(peer.ssl, "mail.example.org")
            if let session { try peer.resume(session) }
            peer.shakeHands(with: engine)
            _ = engine.write("x")
            peer.carryFrom(engine)
            _ = peer.read()
            return (peer.extensions.contains(0), peer)
        }
        let first = try connect(resuming: nil)
        #expect(first.isAcknowledged && !first.peer.isResumed)
        let second = try connect(resuming: first.peer.session())
        #expect(!second.isAcknowledged && second.peer.isResumed)
    }
}

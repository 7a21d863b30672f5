import AsyncSocketsTesting
import COpenSSL
import Testing

@testable import SocketTLS

/// Connections with a pre-shared key, in memory.
@Suite struct PreSharedKeyTests {
    private let alice = Array("alice".utf8)

    @Test(arguments: versions, [1, Int.max]) func aPreSharedKeyAuthenticatesWithoutCertificates(
        _ version: TLSProtocolVersion, chunk: Int
    ) throws {
        let pair = try PreSharedKeyFixture(version).shaken(chunk: chunk)
        #expect(pair.clientError == nil && pair.serverError == nil && pair.isComplete)
        for engine in [pair.client, pair.server] {
            let session = try #require(engine.session)
            #expect(session.preSharedKeyIdentity == alice && session.protocolVersion == version)
            #expect(!session.isResumed && session.peerCertificates.isEmpty && session.peerSignatureAlgorithm == nil)
            #expect(session.resumable == nil && session.group != nil)
            #expect(session.serverName == Fixture.host)
            if version == .tls12 { #expect(session.cipherSuite == "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256") }
        }
        #expect(try pair.exchange(Array("hello".utf8), from: .client) == Array("hello".utf8))
        #expect(try pair.exchange(Array("answer".utf8), from: .server) == Array("answer".utf8))
    }

    @Test func eachHashAlgorithmHasItsSuites() throws {
        for (hash, suite) in [(TLSPreSharedKey.HashAlgorithm.sha256, "SHA256"), (.sha384, "SHA384")] {
            let key = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, hash)
            let pair = try PreSharedKeyFixture(.tls13, key, TLSPreSharedKeys(key)).shaken()
            #expect(pair.client.session?.cipherSuite.hasSuffix(suite) == true)
            #expect(pair.server.session?.preSharedKeyIdentity == alice)
        }
    }

    /// The server requires a different group than the client's first one.
    @Test func aSecondClientHelloHasTheKeyToo() throws {
        for hash in [TLSPreSharedKey.HashAlgorithm.sha256, .sha384] {
            let key = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, hash)
            var fixture = PreSharedKeyFixture(.tls13, key, TLSPreSharedKeys(key))
            fixture.client.policy.groups = ["x25519", "secp384r1"]
            fixture.server.policy.groups = ["secp384r1"]
            let pair = try fixture.shaken()
            #expect(pair.isComplete && pair.client.session?.group == "secp384r1")
            #expect(pair.server.session?.preSharedKeyIdentity == alice)
        }
    }

    @Test(arguments: versions) func aServerFindsThePreSharedKeyOfEachClient(_ version: TLSProtocolVersion) throws {
        let keys = try (0..<20).map { try PreSharedKeyFixture.key("client \($0)", Array("the key of client \($0)".utf8)) }
        let list = try TLSPreSharedKeys(keys)
        let function = TLSPreSharedKeys { identity in keys.first { $0.identity == identity } }
        for source in [list, function] {
            for key in keys {
                let pair = try PreSharedKeyFixture(version, key, source).shaken()
                #expect(pair.server.session?.preSharedKeyIdentity == key.identity)
            }
        }
    }

    @Test(arguments: versions) func theLongestKeysAndIdentitiesAreUsed(_ version: TLSProtocolVersion) throws {
        let identity = [UInt8](repeating: 0x61, count: version == .tls12 ? 128 : 8192)
        for count in [16, 512] {
            let key = try TLSPreSharedKey(identity: identity, key: [UInt8](repeating: 7, count: count))
            let pair = try PreSharedKeyFixture(version, key, TLSPreSharedKeys(key)).shaken()
            #expect(pair.isComplete && pair.server.session?.preSharedKeyIdentity == identity)
        }
    }

    @Test func anIdentityMayHaveAnyBytesInTLS13() throws {
        let key = try TLSPreSharedKey(identity: [0, 0xFF, 0x0A, 0], key: PreSharedKeyFixture.bytes)
        let pair = try PreSharedKeyFixture(.tls13, key, TLSPreSharedKeys(key)).shaken()
        #expect(pair.server.session?.preSharedKeyIdentity == [0, 0xFF, 0x0A, 0])
        #expect(pair.server.session?.description.contains("\n") == false)
    }

    // MARK: - Rejections

    @Test(arguments: versions) func aWrongKeyIsRefused(_ version: TLSProtocolVersion) throws {
        let other = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes)
        let pair = try PreSharedKeyFixture(version, PreSharedKeyFixture.key(), TLSPreSharedKeys(other)).shaken()
        #expect(pair.isRefused)
        #expect(pair.serverError?.code == .preSharedKeyMismatch && pair.clientError?.code == .preSharedKeyMismatch)
        let alert = version == .tls13 ? TLSAlert.decryptError : .badRecordMAC
        #expect(pair.serverError?.sentAlert == alert && pair.clientError?.alert == alert)
        #expect(pair.serverError?.message.contains("different pre-shared keys for the identity \"alice\"") == true)
    }

    /// On the network, an unknown identity cannot be distinguished from a wrong key.
    @Test(arguments: versions) func anUnknownIdentityLooksLikeAWrongKey(_ version: TLSProtocolVersion) throws {
        let others = try TLSPreSharedKeys(["bob", "carol"].map { try PreSharedKeyFixture.key($0) })
        let unknown = try PreSharedKeyFixture(version, PreSharedKeyFixture.key(), others).shaken()
        let other = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes)
        let wrong = try PreSharedKeyFixture(version, PreSharedKeyFixture.key(), TLSPreSharedKeys(other)).shaken()
        #expect(unknown.isRefused && wrong.isRefused)
        #expect(unknown.clientError == wrong.clientError && unknown.clientError?.code == .preSharedKeyMismatch)
        #expect(unknown.original.fromServer.count == wrong.original.fromServer.count)
        if version == .tls13 { #expect(unknown.original.fromServer == wrong.original.fromServer) }
        #expect(unknown.serverError?.message == "this server has no pre-shared key for the client's identity \"alice\"")
    }

    @Test(arguments: versions) func aKeyForAnotherIdentityOrHashCountsAsNone(_ version: TLSProtocolVersion) throws {
        let bob = try PreSharedKeyFixture.key("bob")
        let long = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, .sha384)
        for answer in [bob, long] {
            let pair = try PreSharedKeyFixture(version, PreSharedKeyFixture.key(), TLSPreSharedKeys { _ in answer }).shaken()
            #expect(pair.isRefused && pair.serverError?.code == .preSharedKeyMismatch)
        }
    }

    @Test func keysOfDifferentHashAlgorithmsDoNotMeet() throws {
        let long = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, .sha384)
        let short = try PreSharedKeyFixture.key()
        for (client, server) in [(short, long), (long, short)] {
            let pair = try PreSharedKeyFixture(.tls13, client, TLSPreSharedKeys(server)).shaken()
            #expect(pair.isRefused && pair.serverError?.code == .preSharedKeyMissing)
            #expect(pair.clientError?.alert == .handshakeFailure)
        }
    }

    @Test(arguments: versions) func aServerWithCertificatesIsRefused(_ version: TLSProtocolVersion) throws {
        for evaluation in [TLSTrustEvaluation.builtIn, .delegate, .manual] {
            var fixture = try PreSharedKeyFixture(version)
            fixture.client.trustEvaluation = evaluation
            let pair = try EnginePair(fixture.client, try Fixture(version).server)
            pair.decideClientTrust = { _ in true }
            pair.shakeHands()
            #expect(pair.isRefused && pair.clientQuestions.isEmpty)
            #expect(pair.clientError?.code == (version == .tls13 ? .preSharedKeyMissing : .peerAlert))
            let alert = version == .tls13 ? pair.serverError?.alert : pair.clientError?.alert
            #expect(alert == .handshakeFailure)
        }
    }

    @Test(arguments: versions) func aClientWithoutAKeyIsRefused(_ version: TLSProtocolVersion) throws {
        let pair = try EnginePair(try Fixture(version).client, try PreSharedKeyFixture(version).server)
        pair.shakeHands()
        #expect(pair.isRefused && pair.serverError?.code == .preSharedKeyMissing)
        #expect(pair.serverError?.sentAlert == .handshakeFailure && pair.clientError?.alert == .handshakeFailure)
    }

    /// A valid certificate does not help, and is not sent.
    @Test(arguments: versions) func anIdentityIsNotShownWhereKeysAreRequired(_ version: TLSProtocolVersion) throws {
        let certificates = try Fixture(version)
        var fixture = try PreSharedKeyFixture(version)
        fixture.server.identity = certificates.server.identity
        let pair = try EnginePair(certificates.client, fixture.server)
        pair.shakeHands()
        #expect(pair.isRefused && pair.serverError?.code == .preSharedKeyMissing)
    }

    // MARK: - Preferred

    private func preferring(_ version: TLSProtocolVersion) throws -> PreSharedKeyFixture {
        let certificates = try Fixture(version)
        var fixture = try PreSharedKeyFixture(version)
        fixture.client.values.preSharedKeys?.use = .preferred
        fixture.client.trustRoots = certificates.client.trustRoots
        fixture.server.values.preSharedKeys?.use = .preferred
        fixture.server.identity = certificates.server.identity
        return fixture
    }

    @Test(arguments: versions) func thePreferredKeyIsUsed(_ version: TLSProtocolVersion) throws {
        let pair = try preferring(version).shaken()
        #expect(pair.isComplete && pair.client.session?.peerCertificates == [])
        #expect(pair.client.session?.preSharedKeyIdentity == alice && pair.server.session?.preSharedKeyIdentity == alice)
    }

    @Test(arguments: versions) func withoutACommonKeyCertificatesAreUsed(_ version: TLSProtocolVersion) throws {
        var fixture = try preferring(version)
        var keyless = fixture
        keyless.client.proof = .certificates
        keyless.server.clients = .anyone
        fixture.server.clients = .preSharedKeysOrAnyone(TLSPreSharedKeys(try PreSharedKeyFixture.key("bob")))
        var sides = [(keyless.client, fixture.server), (fixture.client, keyless.server)]
        // In TLS 1.2, the cipher suite is chosen before the server sees the identity.
        if version == .tls13 { sides.append((fixture.client, fixture.server)) }
        for (client, server) in sides {
            let pair = try EnginePair(client, server)
            pair.shakeHands()
            #expect(pair.isComplete && pair.client.session?.peerCertificates.isEmpty == false)
            #expect(pair.client.session?.preSharedKeyIdentity == nil && pair.server.session?.preSharedKeyIdentity == nil)
            var stranger = client
            stranger.trustRoots = .certificates([try TLSCertificate(pem: Fixture.stranger.rootPEM)])
            let refused = try EnginePair(stranger, server)
            refused.shakeHands()
            #expect(refused.isRefused && refused.clientError?.code == .unknownIssuer)
        }
    }

    @Test(arguments: versions) func aWrongKeyIsNoReasonForCertificates(_ version: TLSProtocolVersion) throws {
        var fixture = try preferring(version)
        fixture.server.clients = .preSharedKeysOrAnyone(
            TLSPreSharedKeys(try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes)))
        let pair = try fixture.shaken()
        #expect(pair.isRefused && pair.serverError?.code == .preSharedKeyMismatch)
    }

    @Test(arguments: versions) func aClientAuthenticatesWithAKeyOrACertificate(_ version: TLSProtocolVersion) throws {
        let certificates = try Fixture(version)
        var fixture = try preferring(version)
        fixture.server.values.clientCertificates = .required
        fixture.server.trustRoots = try certificates.authority.roots
        fixture.server.trustEvaluation = .delegate
        let pair = try fixture.shaken()
        #expect(pair.isComplete && pair.server.session?.preSharedKeyIdentity == alice && pair.serverQuestions.isEmpty)
        fixture.client.proof = .certificates
        let bare = try fixture.shaken()
        #expect(bare.server.session == nil && bare.serverError?.code == .clientCertificateMissing)
        fixture.client.identity = try certificates.authority.identity(.client(commonName: "carol"))
        let shown = try EnginePair(fixture.client, fixture.server)
        shown.decideServerTrust = { _ in true }
        shown.shakeHands()
        #expect(shown.isComplete && shown.server.session?.peerCertificates.first?.commonName == "carol")
        #expect(shown.server.session?.preSharedKeyIdentity == nil && shown.serverQuestions.count == 1)
    }

    // MARK: - Sessions and names

    /// Clients with certificates can resume. Clients with a key do not receive tickets.
    @Test(arguments: versions) func ticketsGoOnBesideKeys(_ version: TLSProtocolVersion) throws {
        var fixture = try preferring(version)
        fixture.server.values.tickets = .issued(2)
        let byKey = try fixture.shaken()
        let before = byKey.original.fromServer.count
        #expect(try byKey.exchange([1], from: .server) == [1])
        #expect(byKey.original.fromServer.count - before < 64, "a ticket has left")
        #expect(byKey.client.session?.resumable == nil)
        var client = fixture.client
        client.proof = .certificates
        let first = try EnginePair(client, fixture.server)
        first.shakeHands()
        #expect(try first.exchange([1], from: .server) == [1])
        client.resumption = .session(try #require(first.client.session?.resumable))
        let second = try EnginePair(client, fixture.server)
        second.shakeHands()
        #expect(second.isComplete && second.client.session?.isResumed == true && second.server.session?.isResumed == true)
        #expect(second.server.session?.preSharedKeyIdentity == nil)
    }

    @Test(arguments: versions) func theBindingOfACertificateNeedsOne(_ version: TLSProtocolVersion) throws {
        let pair = try preferring(version).shaken()
        for engine in [pair.client, pair.server] {
            #expect(throws: KeyExporter.Failure.self) { try engine.exporter.channelBinding(.tlsServerEndPoint) }
        }
        #expect(try pair.client.exporter.channelBinding(.tlsExporter) == pair.server.exporter.channelBinding(.tlsExporter))
    }

    @Test(arguments: versions) func eachNameHasItsKeys(_ version: TLSProtocolVersion) throws {
        let certificates = try Fixture(version)
        var keyed = try PreSharedKeyFixture(version)
        var server = certificates.server
        server.serverNames = try TLSServerNames([Fixture.host: keyed.server], unknownName: .reject)
        keyed.server = server
        #expect(try keyed.shaken().server.session?.preSharedKeyIdentity == alice)
        let certified = try EnginePair(certificates.client, server)
        certified.shakeHands()
        #expect(certified.isRefused && certified.serverError?.code == .preSharedKeyMissing)
        // The opposite: keys by default, certificates for the name.
        var reversed = try PreSharedKeyFixture(version).server
        reversed.serverNames = try TLSServerNames([Fixture.host: certificates.server])
        let named = try EnginePair(certificates.client, reversed)
        named.shakeHands()
        #expect(named.isComplete && named.client.session?.peerCertificates.isEmpty == false)
        let unnamed = try EnginePair(keyed.client, reversed)
        unnamed.shakeHands()
        #expect(unnamed.isRefused)
    }

    /// For keys that must be fetched.
    @Test func theServerNameClosureReceivesThePreSharedKeyIdentities() async throws {
        let fixture = try PreSharedKeyFixture()
        let names = TLSServerNames { hello in
            guard hello.preSharedKeyIdentities == [Array("alice".utf8)] else { return nil }
            await Task.yield()
            return .server(preSharedKeys: TLSPreSharedKeys(try PreSharedKeyFixture.key()))
        }
        var settings = try PreSharedKeyFixture(.tls13, PreSharedKeyFixture.key(), TLSPreSharedKeys { _ in nil }).server
        settings.serverNames = names
        let pair = try EnginePair(fixture.client, settings)
        pair.shakeHands()
        guard case .awaitingSettings(let question) = pair.serverAnswer else {
            Issue.record("not asked")
            return
        }
        pair.server.choose(await question.answer())
        pair.shakeHands()
        #expect(pair.isComplete && pair.server.session?.preSharedKeyIdentity == alice)
    }
}

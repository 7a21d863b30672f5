import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import Testing

@testable import SocketTLS

/// Our server and a bare client that mixes tickets and pre-shared keys, which our client never does.
@Suite struct PreSharedKeyPeerTests {
    private let alice = Array("alice".utf8)
    private let certificates: Fixture
    /// Pre-shared keys are preferred, and tickets are issued.
    private let mixed: TLSServerSettings
    private let version: TLSProtocolVersion

    init() throws { try self.init(.tls13) }

    private init(_ version: TLSProtocolVersion) throws {
        self.version = version
        certificates = try Fixture(version)
        var settings = certificates.server
        settings.clients = .preSharedKeysOrAnyone(TLSPreSharedKeys(try PreSharedKeyFixture.key()))
        settings.sessionTickets = .issued(1)
        mixed = settings
    }

    private func engine(_ settings: TLSSettings<some TLSRole.Side>) throws -> TLSEngine {
        try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
    }

    @Test func aTicketBesideAKeyIsAResumption() throws {
        let first = try engine(mixed)
        let ticket = try RawPeer.client(of: first).session()
        #expect(first.session?.preSharedKeyIdentity == nil)
        let second = try engine(mixed)
        let peer = try RawPeer.client(of: second, resuming: ticket, withKey: true)
        #expect(peer.isResumed && second.session?.isResumed == true && second.session?.preSharedKeyIdentity == nil)
    }

    /// A ticket from another server that this one cannot decrypt.
    @Test func aKeyBehindAStrangeTicketCounts() throws {
        let ticket = try RawPeer.client(of: engine(mixed)).session()
        for use in [KeyUse.required, .preferred] {
            var settings = try Fixture().server
            settings.values.preSharedKeys = TLSPreSharedKeys(try PreSharedKeyFixture.key()).used(use)
            let server = try engine(settings)
            _ = try RawPeer.client(of: server, resuming: ticket, withKey: true)
            #expect(server.session?.preSharedKeyIdentity == alice && server.session?.isResumed == false)
        }
    }

    /// A client with one key cannot probe for others: an identity that exists is skipped like one that does
    /// not. The guess is offered in place of a ticket, with an invalid binder. With and without a second
    /// ClientHello.
    @Test(arguments: [KeyUse.required, .preferred], [nil, "P-521:P-256"])
    func guessedIdentitiesGetTheSameReplyWhetherOrNotTheyExist(use: KeyUse, groups: String?) throws {
        let ticket = try RawPeer.client(of: engine(mixed))
        let guess = try TLSPreSharedKey(identity: ticket.ticket(), key: [UInt8](repeating: 9, count: 32))
        for keys in [[try PreSharedKeyFixture.key()], [guess, try PreSharedKeyFixture.key()]] {
            var settings = try Fixture().server
            settings.values.preSharedKeys = try TLSPreSharedKeys(keys).used(use)
            let server = try engine(settings)
            let peer = try RawPeer(.tls13)
            peer.offerKey()
            if let groups { try peer.offer(groups: groups) }
            try peer.resume(ticket.session())
            peer.shakeHands(with: server)
            #expect(SSL_is_init_finished(peer.ssl) == 1 && server.session?.preSharedKeyIdentity == alice, "\(keys.count)")
            // Without the valid key, it also fails in the same way.
            let other = try engine(settings)
            let guesser = try RawPeer(.tls13)
            try guesser.resume(ticket.session())
            guesser.shakeHands(with: other)
            guard use == .required else { continue }
            #expect(other.handshake().error?.sentAlert == .decryptError && guesser.alertInHandshake == .decryptError)
        }
    }

    /// The binders of our own clients, with each hash algorithm.
    @Test(arguments: [TLSPreSharedKey.HashAlgorithm.sha256, .sha384])
    func aProofIsThatOfItsKey(hash: TLSPreSharedKey.HashAlgorithm) throws {
        func key(_ byte: UInt8) throws -> TLSPreSharedKey {
            try TLSPreSharedKey(identity: "bob", key: [UInt8](repeating: byte, count: 40), hash: hash)
        }
        let client = try engine(.client(serverName: "b", preSharedKey: key(1)))
        _ = client.handshake()
        let hello = Array(client.output.readableBytes.dropFirst(5))
        var list = PreSharedKeyList([])
        hello.withUnsafeBytes { bytes in
            #expect(ClientHelloMessage(bytes).forEachExtension { if $0 == 41 { list = PreSharedKeyList($1) } })
        }
        #expect(list.identities == [Array("bob".utf8)] && list.binders.count == 1)
        var binders = KeyBinders()
        #expect(try !binders.prove(key(1), at: 0, of: list))
        hello.withUnsafeBytes { binders.sawHello($0) }
        #expect(try binders.prove(key(1), at: 0, of: list))
        #expect(try !binders.prove(key(2), at: 0, of: list))
        #expect(try !binders.prove(key(1), at: 1, of: list))
    }

    /// Not even one issued with this server's keys.
    @Test(arguments: versions) func aTicketIsNoKey(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let ticket = try RawPeer.client(version, of: tests.engine(tests.mixed)).session()
        let server = try tests.engine(.server(preSharedKeys: TLSPreSharedKeys(PreSharedKeyFixture.key())).only(version))
        #expect(throws: TestFailure.self) { try RawPeer.client(version, of: server, resuming: ticket) }
        let error = try #require(server.handshake().error)
        #expect(error.code == (version == .tls13 ? .preSharedKeyMismatch : .preSharedKeyMissing))
        #expect(server.session == nil)
    }

    @Test(arguments: versions) func aClientWithAKeyGetsNoTicket(_ version: TLSProtocolVersion) throws {
        let tests = try Self(version)
        let server = try tests.engine(tests.mixed)
        let peer = try RawPeer.client(version, of: server, withKey: true)
        #expect(server.session?.preSharedKeyIdentity == alice && peer.ticket().isEmpty)
        let certified = try RawPeer.client(version, of: tests.engine(tests.mixed))
        #expect(!certified.ticket().isEmpty)
    }

    /// The newest common version is negotiated, with the key.
    @Test(arguments: versions, versions) func theKeyServesBothVersions(client: TLSProtocolVersion, server: TLSProtocolVersion)
        throws
    {
        var fixture = try PreSharedKeyFixture()
        (fixture.client.minimumVersion, fixture.client.maximumVersion) = (.tls12, client)
        (fixture.server.minimumVersion, fixture.server.maximumVersion) = (.tls12, server)
        let pair = try fixture.shaken()
        #expect(pair.isComplete && pair.server.session?.protocolVersion == min(client, server))
        #expect(pair.client.session?.preSharedKeyIdentity == alice && pair.server.session?.preSharedKeyIdentity == alice)
        fixture.client.proof = .preSharedKey(try PreSharedKeyFixture.key("bob"))
        let refused = try fixture.shaken()
        #expect(refused.isRefused && refused.serverError?.code == .preSharedKeyMismatch)
    }

    /// OpenSSL's TLS 1.2 callback would see only "alice".
    @Test func anIdentityIsNotCutAtAZero() throws {
        let longer = try TLSPreSharedKey(identity: alice + [0, 1], key: PreSharedKeyFixture.bytes)
        var fixture = PreSharedKeyFixture(.tls13, longer, TLSPreSharedKeys(try PreSharedKeyFixture.key()))
        fixture.server.minimumVersion = .tls12
        let refused = try fixture.shaken()
        #expect(refused.isRefused && refused.serverError?.code == .preSharedKeyMismatch)
        fixture.server.values.preSharedKeys?.use = .preferred
        fixture.server.identity = certificates.server.identity
        fixture.client.values.preSharedKeys?.use = .preferred
        fixture.client.trustRoots = certificates.client.trustRoots
        let certified = try fixture.shaken()
        #expect(certified.isComplete && certified.client.session?.peerCertificates.isEmpty == false)
        #expect(certified.server.session?.preSharedKeyIdentity == nil)
    }

    /// Only in TLS 1.3 by default (RFC 8446, appendix E.7).
    @Test func keysAreForTLS13ByDefault() throws {
        let key = try PreSharedKeyFixture.key()
        let server = TLSSettings.server(preSharedKeys: TLSPreSharedKeys(key))
        #expect(TLSSettings.client(serverName: "a", preSharedKey: key).minimumVersion == .tls13)
        let peer = try RawPeer(.tls12)
        peer.offerKey()
        let engine = try engine(server)
        peer.shakeHands(with: engine)
        #expect(engine.handshake().error?.code == .noSharedParameters && peer.alertInHandshake == .protocolVersion)
    }

    /// The binder has already proved that the keys are the same.
    @Test func aDamagedFinishedIsNoMismatchInTLS13() throws {
        let fixture = try PreSharedKeyFixture()
        let count = try fixture.shaken().original.fromClient.count
        let pair = try EnginePair(fixture.client, fixture.server, fromClient: [.alter(at: count - 1, xor: 1)])
        pair.shakeHands()
        #expect(pair.server.session == nil && pair.serverError?.code == .protocolViolation)
        #expect(pair.serverError?.sentAlert == .badRecordMAC)
    }

    /// Whatever the byte.
    @Test(arguments: versions) func changedBytesNeverEstablish(_ version: TLSProtocolVersion) throws {
        let fixture = try PreSharedKeyFixture(version)
        let hello = try fixture.shaken().original.fromClient.count
        for offset in stride(from: 5, to: hello, by: 7) {
            let pair = try EnginePair(fixture.client, fixture.server, fromClient: [.alter(at: offset, xor: 0x41)])
            pair.shakeHands()
            #expect(pair.server.session == nil, "byte \(offset)")
        }
    }
}

extension TLSSettings {
    fileprivate func only(_ version: TLSProtocolVersion) -> TLSSettings {
        var settings = self
        (settings.minimumVersion, settings.maximumVersion) = (version, version)
        return settings
    }
}

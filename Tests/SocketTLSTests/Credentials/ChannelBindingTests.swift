import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

/// Channel bindings and exported keying material are the same on both sides and match OpenSSL's own
/// functions.
@Suite struct ChannelBindingTests {
    private func pair(_ version: TLSProtocolVersion) throws -> EnginePair {
        let pair = try Fixture(version).pair()
        pair.shakeHands()
        try #require(pair.isComplete)
        return pair
    }

    private func failure(_ body: () throws(KeyExporter.Failure) -> [UInt8]) -> KeyExporter.Failure? {
        do throws(KeyExporter.Failure) {
            let bytes = try body()
            Issue.record("there are \(bytes.count) bytes")
            return nil
        } catch {
            return error
        }
    }

    private func expectUnavailable(_ kinds: TLSChannelBinding..., from engine: TLSEngine) {
        for kind in kinds {
            let failure = failure { () throws(KeyExporter.Failure) in try engine.exporter.channelBinding(kind) }
            guard case .unavailable(let error) = failure else {
                Issue.record("\(kind): \(String(describing: failure))")
                continue
            }
            #expect(error.code == .bindingUnavailable && error.fault == .caller)
        }
    }

    private func expectBadParameter(
        _ engine: TLSEngine, label: String = "EXPERIMENTAL x", context: [UInt8]? = nil, length: Int = 32,
        _ place: SourceLocation = #_sourceLocation
    ) {
        let failure = failure { () throws(KeyExporter.Failure) in
            try engine.exporter.keyingMaterial(label: label, context: context, length: length)
        }
        guard case .badParameter = failure else {
            Issue.record("\(String(describing: failure))", sourceLocation: place)
            return
        }
    }

    // MARK: - Both sides

    @Test(arguments: versions) func bothSidesHaveTheSameBindings(_ version: TLSProtocolVersion) throws {
        let kinds: [TLSChannelBinding] = version == .tls12 ? TLSChannelBinding.allCases : [.tlsExporter, .tlsServerEndPoint]
        let (pair, other) = (try pair(version), try pair(version))
        for kind in kinds {
            let binding = try pair.client.exporter.channelBinding(kind)
            #expect(try pair.server.exporter.channelBinding(kind) == binding)
            #expect(binding.count == (kind == .tlsUnique ? 12 : 32))
            // Another connection, with another certificate.
            #expect(try other.client.exporter.channelBinding(kind) != binding)
        }
    }

    @Test(arguments: versions) func theBindingOfTheEndPointIsThatOfTheCertificate(_ version: TLSProtocolVersion) throws {
        let fixture = try Fixture(version)
        let pairs = try (0..<2).map { _ in try fixture.pair() }
        for pair in pairs { pair.shakeHands() }
        let bindings = try pairs.map { try $0.client.exporter.channelBinding(.tlsServerEndPoint) }
        #expect(bindings[0] == bindings[1])
        #expect(bindings[0] == fixture.server.identity?.certificateChain.first?.sha256Fingerprint)
        let exported = try pairs.map { try $0.client.exporter.channelBinding(.tlsExporter) }
        #expect(exported[0] != exported[1])
    }

    @Test func noConnectionOfTLS13HasTheOldBinding() throws {
        let pair = try pair(.tls13)
        expectUnavailable(.tlsUnique, from: pair.client)
        expectUnavailable(.tlsUnique, from: pair.server)
    }

    @Test(arguments: versions) func keyingMaterialDependsOnAllArguments(_ version: TLSProtocolVersion) throws {
        let pair = try pair(version)
        func material(_ label: String, _ context: [UInt8]?, _ length: Int) throws -> [UInt8] {
            let bytes = try pair.client.exporter.keyingMaterial(label: label, context: context, length: length)
            #expect(try pair.server.exporter.keyingMaterial(label: label, context: context, length: length) == bytes)
            #expect(bytes.count == length)
            return bytes
        }
        let reference = try material("EXPERIMENTAL x", [1], 48)
        #expect(try material("EXPERIMENTAL y", [1], 48) != reference)
        #expect(try material("EXPERIMENTAL x", [2], 48) != reference)
        let (empty, none) = (try material("EXPERIMENTAL x", [], 48), try material("EXPERIMENTAL x", nil, 48))
        #expect((empty == none) == (version == .tls13) && empty != reference)
        let short = try material("EXPERIMENTAL x", [1], 20)
        // The length is an input too, but only in TLS 1.3.
        #expect((Array(reference.prefix(20)) == short) == (version == .tls12))
    }

    // MARK: - Limits

    @Test(arguments: versions) func argumentsHaveLimits(_ version: TLSProtocolVersion) throws {
        let engine = try pair(version).client
        let hash = engine.session?.cipherSuite.hasSuffix("SHA384") == true ? 48 : 32
        for length in [0, -1, .min, .max, 255 * hash + 1] { expectBadParameter(engine, length: length) }
        for label in ["", String(repeating: "x", count: 250)] { expectBadParameter(engine, label: label) }
        expectBadParameter(engine, context: [UInt8](repeating: 0, count: 65_536))
        for (label, length) in [("x", 1), (String(repeating: "x", count: 249), 255 * hash)] {
            let count = version == .tls12 ? 958 - label.utf8.count : 65_535
            let context = [UInt8](repeating: 0, count: count)
            #expect(try engine.exporter.keyingMaterial(label: label, context: context, length: length).count == length)
        }
    }

    /// OpenSSL 3.0 fails, newer versions do not.
    @Test func aLongContextInTLS12IsTheCallersFault() throws {
        let pair = try pair(.tls12)
        let context = [UInt8](repeating: 0, count: 65_535)
        do throws(KeyExporter.Failure) {
            let material = try pair.client.exporter.keyingMaterial(label: "x", context: context, length: 32)
            #expect(try pair.server.exporter.keyingMaterial(label: "x", context: context, length: 32) == material)
        } catch {
            guard case .badParameter = error else { throw error }
        }
    }

    @Test func labelsOfTLSItselfAreRefused() throws {
        let engine = try pair(.tls12).server
        for label in ["client finished", "server finished", "master secret", "extended master secret", "key expansion"] {
            expectBadParameter(engine, label: label)
        }
    }

    /// One of our servers, and a client that supports nothing newer than RFC 5246.
    @Test func nothingIsExportedWithoutTheExtendedMasterSecret() throws {
        let server = try Fixture(.tls12).engine(.server)
        let peer = try RawPeer(.tls12)
        SSL_set_options(peer.ssl, COpenSSL_noExtendedMasterSecretOption())
        peer.shakeHands(with: server)
        try #require(server.handshake().isComplete)
        expectUnavailable(.tlsExporter, .tlsUnique, from: server)
        #expect(try server.exporter.channelBinding(.tlsServerEndPoint).count == 32)
    }

    @Test(arguments: versions) func thereIsNothingBeforeTheHandshakeAndAfterTheEnd(_ version: TLSProtocolVersion) throws {
        var exporter: KeyExporter?
        do {
            let pair = try Fixture(version).pair()
            exporter = pair.client.exporter
            expectEnded(try #require(exporter))
            pair.shakeHands()
            #expect(try exporter?.channelBinding(.tlsExporter).count == 32)
        }
        expectEnded(try #require(exporter))
    }

    private func expectEnded(_ exporter: KeyExporter) {
        for kind in TLSChannelBinding.allCases {
            let failure = failure { () throws(KeyExporter.Failure) in try exporter.channelBinding(kind) }
            guard case .ended = failure else {
                Issue.record("\(kind): \(String(describing: failure))")
                continue
            }
        }
    }

    // MARK: - Resumed sessions, and OpenSSL's own calls

    /// One of our clients connects twice to a plain OpenSSL server.
    @Test(arguments: versions) func resumedSessionsHaveBindingsOfTheirOwn(_ version: TLSProtocolVersion) throws {
        let fixture = try Fixture(version)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        let server = try RawServer(version, pem: issued.pem)
        var bindings: [[UInt8]] = []
        var settings = fixture.client
        for isResumed in [false, true] {
            let client = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
            let peer = try RawPeer(serving: server.connection)
            peer.shakeHands(with: client)
            peer.send("hello")
            peer.carryTo(client)
            #expect(client.readAll().text == "hello")
            let session = try #require(client.session)
            #expect(session.isResumed == isResumed)
            settings.resumption = .session(try #require(session.resumable))
            for binding in [try exported(client, peer)] + (version == .tls12 ? [try unique(client, peer, isResumed)] : []) {
                #expect(!bindings.contains(binding))
                bindings.append(binding)
            }
            let leaf = try TLSCertificate(pem: issued.certificatePEM)
            #expect(try client.exporter.channelBinding(.tlsServerEndPoint) == leaf.sha256Fingerprint)
            SSL_set_shutdown(peer.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
        }
    }

    private func exported(_ client: TLSEngine, _ peer: RawPeer) throws -> [UInt8] {
        let label = "EXPORTER-Channel-Binding"
        var bytes = [UInt8](repeating: 0, count: 32)
        #expect(SSL_export_keying_material(peer.ssl, &bytes, 32, label, label.utf8.count, [], 0, 1) == 1)
        #expect(try client.exporter.channelBinding(.tlsExporter) == bytes)
        return bytes
    }

    private func unique(_ client: TLSEngine, _ peer: RawPeer, _ isResumed: Bool) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 64)
        // The server's Finished is the first one only if the session is resumed.
        let count = isResumed ? SSL_get_finished(peer.ssl, &bytes, 64) : SSL_get_peer_finished(peer.ssl, &bytes, 64)
        let binding = try client.exporter.channelBinding(.tlsUnique)
        #expect(binding == Array(bytes.prefix(count)) && count == 12)
        return binding
    }

    /// Tickets issued by our server.
    @Test func aServerThatResumesAgreesWithItsClient() throws {
        var fixture = try Fixture(.tls13)
        fixture.server.sessionTickets = .issued(1)
        let first = try fixture.pair()
        first.shakeHands()
        _ = try first.exchange([1], from: .server)
        let session = try #require(first.client.session?.resumable)
        fixture.client.resumption = .session(session)
        let second = try fixture.pair()
        second.shakeHands()
        #expect(second.client.session?.isResumed == true && second.server.session?.isResumed == true)
        for kind in [TLSChannelBinding.tlsExporter, .tlsServerEndPoint] {
            #expect(try second.client.exporter.channelBinding(kind) == second.server.exporter.channelBinding(kind))
        }
        #expect(try second.client.exporter.channelBinding(.tlsExporter) != first.client.exporter.channelBinding(.tlsExporter))
    }

    // MARK: - Signatures of certificates

    @Test(arguments: SignatureKind.allCases, versions)
    func theDigestIsThatOfTheSignature(_ kind: SignatureKind, _ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        let identity = try TLSIdentity.selfSigned(kind)
        fixture.server.identity = identity
        fixture.client.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        try #require(pair.isComplete)
        let digest: OpaquePointer?
        switch kind {
        case .md5, .sha1, .sha256: digest = EVP_sha256()
        case .sha384, .pss384: digest = EVP_sha384()
        case .sha512: digest = EVP_sha512()
        case .ed25519:
            expectUnavailable(.tlsServerEndPoint, from: pair.client)
            return expectUnavailable(.tlsServerEndPoint, from: pair.server)
        }
        var (expected, count) = ([UInt8](repeating: 0, count: 64), UInt32(0))
        let certificate = try #require(identity.certificateChain.first).derBytes
        #expect(EVP_Digest(certificate, certificate.count, &expected, &count, digest, nil) == 1)
        for engine in [pair.client, pair.server] {
            #expect(try engine.exporter.channelBinding(.tlsServerEndPoint) == Array(expected.prefix(Int(count))))
        }
    }
}

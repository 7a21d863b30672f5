import AsyncSocketsTesting
import COpenSSL
import Testing

@testable import SocketTLS

/// Connections with raw public keys, in memory. With OpenSSL older than 3.2, each test checks that its
/// settings are rejected.
@Suite struct RawPublicKeyTests {
    @Test(arguments: versions, [1, Int.max]) func aServerIsAuthenticatedByItsRawPublicKey(
        _ version: TLSProtocolVersion, chunk: Int
    ) throws {
        let fixture = try RawPublicKeyFixture(version)
        guard try fixture.isSupported() else { return }
        let pair = try fixture.shaken(chunk: chunk)
        #expect(pair.clientError == nil && pair.serverError == nil && pair.isComplete)
        let session = try #require(pair.client.session)
        #expect(session.peerPublicKey == fixture.serverKey && session.peerCertificates.isEmpty)
        #expect(session.peerSignatureAlgorithm == "ECDSA-SHA256" && session.protocolVersion == version)
        #expect(!session.isResumed && session.resumable == nil && pair.clientQuestions.isEmpty)
        let digest = PublicKeyInfo.sha256(of: fixture.serverKey).hexadecimal
        #expect(session.description.hasSuffix("peer key \(digest)") && session.json.contains("\"peerPublicKey\":\"\(digest)\""))
        #expect(pair.server.session?.peerPublicKey == nil && pair.server.session?.peerCertificates == [])
        #expect(try pair.exchange(Array("hello".utf8), from: .client) == Array("hello".utf8))
        #expect(try pair.exchange(Array("answer".utf8), from: .server) == Array("answer".utf8))
    }

    @Test(arguments: versions) func bothSidesAreKnownByTheirKeys(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        guard try fixture.isSupported() else { return }
        let pair = try fixture.shaken()
        #expect(pair.isComplete)
        #expect(pair.client.session?.peerPublicKey == fixture.serverKey)
        #expect(pair.server.session?.peerPublicKey == fixture.clientKey)
        #expect(pair.server.session?.peerCertificates.isEmpty == true)
        #expect(try pair.exchange(Array("hello".utf8), from: .client) == Array("hello".utf8))
    }

    /// The server sends a certificate, and its clients send keys.
    @Test(arguments: versions) func onlyClientsMayHaveKeys(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.client.proof = .certificates
        fixture.server.presentsRawPublicKey = false
        guard try fixture.isSupported() else { return }
        let pair = try fixture.shaken()
        #expect(pair.isComplete && pair.server.session?.peerPublicKey == fixture.clientKey)
        #expect(pair.client.session?.peerPublicKey == nil && pair.client.session?.peerCertificates.count == 1)
    }

    @Test(arguments: versions) func anyOfSeveralExpectedKeysIsAccepted(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        let digests = try [RawPublicKeyFixture.otherKey, fixture.serverKey].map(PublicKeyInfo.sha256)
        fixture.client.proof = .rawPublicKeys(try TLSRawPublicKeys(expectedSHA256: Set(digests)))
        guard try fixture.isSupported() else { return }
        #expect(try fixture.shaken().client.session?.peerPublicKey == fixture.serverKey)
    }

    // MARK: - Rejections

    @Test(arguments: versions, [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func anUnexpectedKeyOfAServerIsRefused(_ version: TLSProtocolVersion, mode: TLSTrustEvaluation) throws {
        var fixture = try RawPublicKeyFixture(version)
        for use in [KeyUse.required, .preferred] {
            fixture.client.values.rawPublicKeys = try TLSRawPublicKeys(expected: [RawPublicKeyFixture.otherKey]).used(use)
            // Its certificate would be accepted.
            fixture.client.trustRoots = try fixture.base.authority.roots
            fixture.client.trustEvaluation = mode
            guard try fixture.isSupported() else { return }
            let pair = try EnginePair(fixture.client, fixture.server)
            pair.decideClientTrust = { _ in true }
            pair.shakeHands()
            #expect(pair.isRefused && pair.clientQuestions.isEmpty)
            #expect(pair.clientError?.code == .rawPublicKeyMismatch && pair.clientError?.sentAlert == .certificateUnknown)
            #expect(pair.clientError?.message.contains(PublicKeyInfo.sha256(of: fixture.serverKey).hexadecimal) == true)
            #expect(pair.serverError?.code == .peerAlert && pair.serverError?.alert == .certificateUnknown)
        }
    }

    @Test(arguments: versions, [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func anUnexpectedKeyOfAClientIsRefused(_ version: TLSProtocolVersion, mode: TLSTrustEvaluation) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        for wish in [TLSClientCertificates.optional, .required] {
            fixture.server.clients = .rawPublicKeys(
                try TLSRawPublicKeys(expected: [RawPublicKeyFixture.otherKey]), wish)
            fixture.server.trustEvaluation = mode
            guard try fixture.isSupported() else { return }
            let pair = try EnginePair(fixture.client, fixture.server)
            pair.decideServerTrust = { _ in true }
            pair.shakeHands()
            #expect(pair.server.session == nil && pair.serverQuestions.isEmpty)
            #expect(pair.serverError?.code == .rawPublicKeyMismatch && pair.serverError?.sentAlert == .certificateUnknown)
        }
    }

    /// An attacker sends the expected public key without having the private key.
    @Test func aKeyHasToBeProved() throws {
        var fixture = try RawPublicKeyFixture(.tls12)
        let impostor = try Fixture.stranger.identity(.server(names: [Fixture.host]))
        let shown = try #require(impostor.privateKey.publicKey)
        fixture.server.identity = impostor
        guard try fixture.isSupported() else { return }
        let honest = try fixture.shaken()
        #expect(honest.clientError?.code == .rawPublicKeyMismatch)
        let wire = honest.original.fromServer
        let place = try #require((0...wire.count - shown.count).first { wire[$0...].starts(with: shown) })
        let changes = zip(shown, fixture.serverKey).enumerated().map {
            Tampering.alter(at: place + $0.offset, xor: $0.element.0 ^ $0.element.1)
        }
        let pair = try EnginePair(fixture.client, fixture.server, fromServer: changes)
        pair.shakeHands()
        #expect(pair.isRefused && pair.clientError?.code == .protocolViolation)
        #expect(pair.clientError?.sentAlert == .decryptError)
    }

    @Test(arguments: versions, [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func aCertificateIsRefusedWhereAKeyIsRequired(_ version: TLSProtocolVersion, mode: TLSTrustEvaluation) throws {
        var fixture = try RawPublicKeyFixture(version)
        fixture.server.presentsRawPublicKey = false
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.client.trustEvaluation = mode
        guard TLSRawPublicKeys.isSupported else {
            #expect(throws: TLSError.self) { try fixture.shaken() }
            return
        }
        let pair = try EnginePair(fixture.client, fixture.server)
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isRefused && pair.clientQuestions.isEmpty)
        #expect(pair.clientError?.code == .rawPublicKeyMissing && pair.clientError?.sentAlert == .unsupportedCertificate)
        #expect(pair.serverError?.alert == .unsupportedCertificate)
    }

    @Test(arguments: versions) func aClientWithACertificateIsRefused(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        fixture.client.presentsRawPublicKey = false
        fixture.server.trustRoots = try fixture.base.authority.roots
        guard try fixture.isSupported() else { return }
        let pair = try fixture.shaken()
        #expect(pair.server.session == nil && pair.serverError?.code == .rawPublicKeyMissing)
        #expect(pair.serverError?.sentAlert == .unsupportedCertificate)
    }

    @Test(arguments: versions) func aClientWithNothingIsRefusedUnlessItMay(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        fixture.client.identity = nil
        fixture.client.presentsRawPublicKey = false
        guard try fixture.isSupported() else { return }
        let refused = try fixture.shaken()
        #expect(refused.server.session == nil && refused.serverError?.code == .clientCertificateMissing)
        fixture.server.values.clientCertificates = .optional
        let admitted = try fixture.shaken()
        #expect(admitted.isComplete && admitted.server.session?.peerPublicKey == nil)
    }

    // MARK: - Keys or certificates

    @Test(arguments: versions) func aTrustedCertificateIsAcceptedInsteadOfAPreferredKey(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        fixture.client.values.rawPublicKeys?.use = .preferred
        guard try fixture.isSupported() else { return }
        #expect(try fixture.shaken().client.session?.peerPublicKey == fixture.serverKey)
        fixture.server.presentsRawPublicKey = false
        let untrusted = try fixture.shaken()
        #expect(untrusted.isRefused && untrusted.clientError?.code == .unknownIssuer)
        fixture.client.trustRoots = try fixture.base.authority.roots
        let trusted = try fixture.shaken()
        #expect(trusted.isComplete && trusted.client.session?.peerPublicKey == nil)
        #expect(trusted.client.session?.peerCertificates.count == 1)
    }

    @Test(arguments: versions) func aPeerWithoutRawKeySupportReceivesACertificate(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual(.preferred)
        guard try fixture.isSupported() else { return }
        (fixture.client.proof, fixture.client.presentsRawPublicKey) = (.certificates, false)
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.server.trustRoots = try fixture.base.authority.roots
        let pair = try fixture.shaken()
        #expect(pair.isComplete)
        for session in [pair.client.session, pair.server.session] {
            #expect(session?.peerPublicKey == nil && session?.peerCertificates.count == 1)
        }
    }

    // MARK: - Decisions

    @Test(arguments: versions, Side.allCases)
    func theTrustCallbackCanRejectAnExpectedKey(_ version: TLSProtocolVersion, side: Side) throws {
        for mode in [TLSTrustEvaluation.delegate, .manual] {
            for isAccepted in [true, false] {
                var fixture = try RawPublicKeyFixture(version)
                try fixture.makeMutual()
                if side == .client { fixture.client.trustEvaluation = mode } else { fixture.server.trustEvaluation = mode }
                guard try fixture.isSupported() else { return }
                let pair = try EnginePair(fixture.client, fixture.server)
                (pair.decideClientTrust, pair.decideServerTrust) = ({ _ in isAccepted }, { _ in isAccepted })
                pair.shakeHands()
                let questions = side == .client ? pair.clientQuestions : pair.serverQuestions
                let expected = side == .client ? fixture.serverKey : fixture.clientKey
                #expect(questions.count == 1 && questions.first?.publicKey == expected)
                #expect(questions.first?.chain.isEmpty == true && questions.first?.verdict == .trusted)
                let engine = side == .client ? pair.client : pair.server
                let error = side == .client ? pair.clientError : pair.serverError
                #expect(engine.session?.peerPublicKey == (isAccepted ? expected : nil))
                #expect(error?.code == (isAccepted ? nil : .trustRejected))
                if let error {
                    #expect(error.message == "the trust callback rejected the peer's raw public key")
                    #expect(error.sentAlert == .badCertificate)
                }
            }
        }
    }

    // MARK: - Sessions, names and bindings

    @Test(arguments: versions) func noSessionCrossesTheBorder(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        guard try fixture.isSupported() else { return }
        var plain = fixture.base
        plain.client.proof = .certificates
        plain.client.trustRoots = try plain.authority.roots
        plain.server.presentsRawPublicKey = false
        plain.server.sessionTickets = .issued(1)
        let first = try plain.pair()
        first.shakeHands()
        _ = try first.exchange([1], from: .server)
        #expect(first.client.session?.resumable != nil)
        fixture.client.values.rawPublicKeys?.use = .preferred
        fixture.client.trustRoots = plain.client.trustRoots
        for _ in 0..<2 {
            let pair = try fixture.shaken()
            _ = try pair.exchange([1], from: .server)
            #expect(pair.client.session?.isResumed == false && pair.client.session?.resumable == nil)
            #expect(pair.client.session?.peerPublicKey == fixture.serverKey)
        }
    }

    @Test(arguments: versions) func theBindingOfACertificateNeedsACertificate(_ version: TLSProtocolVersion) throws {
        let fixture = try RawPublicKeyFixture(version)
        guard try fixture.isSupported() else { return }
        let pair = try fixture.shaken()
        for engine in [pair.client, pair.server] {
            #expect(throws: KeyExporter.Failure.self) { try engine.exporter.channelBinding(.tlsServerEndPoint) }
        }
        #expect(try pair.client.exporter.channelBinding(.tlsExporter) == pair.server.exporter.channelBinding(.tlsExporter))
    }

    @Test(arguments: versions) func aNameMayHaveRawKeys(_ version: TLSProtocolVersion) throws {
        var fixture = try RawPublicKeyFixture(version)
        try fixture.makeMutual()
        guard try fixture.isSupported() else { return }
        var outer = try Fixture(version).server
        outer.serverNames = try TLSServerNames([Fixture.host: fixture.server])
        let pair = try EnginePair(fixture.client, outer)
        pair.shakeHands()
        #expect(pair.isComplete && pair.server.session?.peerPublicKey == fixture.clientKey)
        // The callback of the outer settings is called (TrustGate, rule 10).
        outer.trustEvaluation = .delegate
        let asking = try EnginePair(fixture.client, outer)
        asking.decideServerTrust = { _ in false }
        asking.shakeHands()
        #expect(asking.serverQuestions.first?.publicKey == fixture.clientKey && asking.serverError?.code == .trustRejected)
        // Other names have no raw keys.
        fixture.client = .client(serverName: "www.example.org")
        (fixture.client.minimumVersion, fixture.client.maximumVersion) = (version, version)
        fixture.client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [fixture.serverKey]))
        let other = try EnginePair(fixture.client, outer)
        other.shakeHands()
        #expect(other.clientError?.code == .rawPublicKeyMissing)
    }
}

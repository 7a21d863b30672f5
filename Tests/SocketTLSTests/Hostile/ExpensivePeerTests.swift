import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import SocketTestTraits
import Testing

/// Expensive computations that a peer must not cause.
@Suite(.ownThreads) struct ExpensivePeerTests {
    private static let finiteFields = "ffdhe2048:ffdhe3072:ffdhe4096:ffdhe6144:ffdhe8192"

    @Test func aServerComputesNothingInAFiniteField() throws {
        for groups in Self.finiteFields.split(separator: ":") {
            let server = try Fixture(.tls13).engine(.server)
            let peer = try RawPeer(.tls13)
            try peer.offer(groups: String(groups))
            peer.shakeHands(with: server)
            #expect(server.handshake().error?.code == .noSharedParameters)
        }
    }

    @Test func aClientComputesNothingInAFiniteField() throws {
        let (client, peer) = try Fixture(.tls13).clientAndServer(.tls13)
        try peer.offer(groups: Self.finiteFields)
        peer.shakeHands(with: client)
        #expect(client.handshake().error?.alert == .handshakeFailure)
    }

    @Test func theServerAsksForACurveInsteadOfAFiniteField() throws {
        let server = try Fixture(.tls13).engine(.server)
        let peer = try RawPeer(.tls13)
        try peer.offer(groups: "ffdhe8192:secp384r1")
        peer.shakeHands(with: server)
        try #require(server.handshake().isComplete)
        #expect(server.session?.group == "secp384r1")
    }

    @Test func noTLS12SuiteComputesInAFiniteField() throws {
        var fixture = try Fixture(.tls12)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa2048, signedBy: .root)
        fixture.server.identity = try issued.identity()
        let server = try fixture.engine(.server)
        let peer = try RawPeer(.tls12)
        try peer.offer(ciphers: "DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305")
        peer.shakeHands(with: server)
        #expect(server.handshake().error?.code == .noSharedParameters)
    }

    @Test(arguments: ["X25519", "secp256r1", "secp384r1"])
    func eachGroupOfOursIsAgreedOn(group: String) throws {
        let server = try Fixture(.tls13).engine(.server)
        let peer = try RawPeer(.tls13)
        try peer.offer(groups: group)
        peer.shakeHands(with: server)
        #expect(server.handshake().isComplete)
        #expect(server.session?.group?.lowercased() == group.lowercased())
    }

    @Test(arguments: ["X448", "secp521r1"])
    func noGroupThatCostsMoreIsAgreedOn(group: String) throws {
        let server = try Fixture(.tls13).engine(.server)
        let peer = try RawPeer(.tls13)
        try peer.offer(groups: group)
        peer.shakeHands(with: server)
        #expect(server.handshake().error?.code == .noSharedParameters)
    }

    /// The newest available group: with OpenSSL 3.5, a post-quantum hybrid.
    @Test func twoEnginesAgreeOnTheBestGroup() throws {
        let pair = try Fixture().pair()
        pair.shakeHands()
        let best = OpenSSL_version_num() >= 0x3050_0000 ? "X25519MLKEM768" : "x25519"
        #expect(pair.client.session?.group == best)
    }
}

/// Certificates that are too expensive.
@Suite struct ExpensiveCertificateTests {
    /// Performs a handshake between a victim in the given role and a peer with a certificate.
    private func handshake(
        _ version: TLSProtocolVersion, _ role: Side, certificate: ForgedCertificate, chain: [ForgedCertificate] = [],
        _ change: (inout TLSSettingValues) -> Void = { _ in }
    ) throws -> (error: TLSError?, alert: TLSAlert?, engine: TLSEngine) {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        change(&fixture.client.values)
        change(&fixture.server.values)
        let engine = try fixture.engine(role)
        let peer = try role == .server ? RawPeer(version) : fixture.clientAndServer(version).peer
        try peer.show(certificate, chain: chain)
        peer.shakeHands(with: engine)
        // A TLS 1.3 client completes its handshake before the server has evaluated it.
        let late = peer.read() == nil ? peer.lastAlert().map { TLSAlert(rawValue: $0) } : nil
        return (engine.handshake().error, peer.alertInHandshake ?? late, engine)
    }

    private static func many(_ count: Int) throws -> [ForgedCertificate] {
        let key = try ForgedKey(curve: "P-256")
        return try (0..<count).map { _ in try ForgedCertificate(key) }
    }

    @Test(arguments: versions, Side.allCases)
    func aChainOfTooManyCertificatesIsRefused(version: TLSProtocolVersion, role: Side) throws {
        let certificates = try Self.many(11)
        let result = try handshake(version, role, certificate: certificates[0], chain: Array(certificates.dropFirst()))
        #expect(result.error?.code == .certificateTooLarge)
        #expect(result.error?.fault == .certificate)
        // OpenSSL sends different alerts on clients and servers for a certificate that it cannot decode.
        #expect(result.error?.sentAlert == (role == .client ? .badCertificate : .decodeError))
        #expect(result.alert == result.error?.sentAlert)
        #expect(
            result.error?.message
                == "the peer sent more than 10 certificates: raise maximumCertificateChainLength to accept them")
        #expect(result.error?.openSSLStack == [])
    }

    @Test(arguments: versions, Side.allCases)
    func aChainOfAsManyCertificatesAsAllowedIsJudged(version: TLSProtocolVersion, role: Side) throws {
        let certificates = try Self.many(10)
        let result = try handshake(version, role, certificate: certificates[0], chain: Array(certificates.dropFirst()))
        #expect(result.error?.code == .unknownIssuer)
    }

    @Test(arguments: versions, Side.allCases)
    func theLengthOfAChainIsTheSettings(version: TLSProtocolVersion, role: Side) throws {
        let certificates = try Self.many(3)
        let result = try handshake(version, role, certificate: certificates[0], chain: Array(certificates.dropFirst())) {
            $0.maximumCertificateChainLength = 2
        }
        #expect(result.error?.code == .certificateTooLarge)
    }

    @Test(arguments: versions, Side.allCases)
    func aChainOfTooManyBytesIsRefused(version: TLSProtocolVersion, role: Side) throws {
        let certificates = try Self.many(340)
        let result = try handshake(version, role, certificate: certificates[0], chain: Array(certificates.dropFirst()))
        #expect(result.error?.code == .certificateTooLarge)
        #expect(result.error?.message.contains("too large") == true)
        #expect(result.error?.sentAlert == .illegalParameter)
        #expect(result.alert == .illegalParameter)
    }

    @Test(arguments: versions, Side.allCases)
    func theBytesOfAChainAreTheSettings(version: TLSProtocolVersion, role: Side) throws {
        let certificates = try Self.many(6)
        let result = try handshake(version, role, certificate: certificates[0], chain: Array(certificates.dropFirst())) {
            $0.maximumCertificateChainBytes = 1024
        }
        #expect(result.error?.code == .certificateTooLarge)
    }

    @Test(arguments: versions, Side.allCases)
    func aKeyThatCostsTooMuchIsRefused(version: TLSProtocolVersion, role: Side) throws {
        let keys = [
            (try ForgedKey(rsaBits: 16384), "16384 bits"), (try ForgedKey(rsaBits: 8200), "8200 bits"),
            (try ForgedKey(rsaBits: 2048, exponentBits: 2000), "an exponent of 2000 bits"),
        ]
        let signer = try ForgedKey(curve: "P-256")
        for (key, words) in keys {
            let certificate = try ForgedCertificate(key, signer: signer)
            let result = try handshake(version, role, certificate: certificate) { $0.trustEvaluation = .manual }
            #expect(!result.engine.isAwaitingTrust)
            #expect(result.error?.code == .certificateTooLarge)
            #expect(result.error?.message.contains(words) == true, "\(String(describing: result.error))")
            #expect(result.error?.sentAlert == .badCertificate)
            #expect(result.alert == .badCertificate)
        }
    }

    /// The alert says that the certificate was not decoded.
    @Test(arguments: versions, Side.allCases)
    func aDescribedCurveIsRefusedBeforeItIsDecoded(version: TLSProtocolVersion, role: Side) throws {
        let signer = try ForgedKey(curve: "P-256")
        let evil = try ForgedCertificate(ForgedKey(curve: "P-256", describesItsCurve: true), signer: signer)
        let honest = try ForgedCertificate(signer)
        for chain in [[evil], [honest, evil]] {
            let result = try handshake(version, role, certificate: chain[0], chain: Array(chain.dropFirst())) {
                $0.trustEvaluation = .manual
            }
            #expect(!result.engine.isAwaitingTrust)
            #expect(result.error?.code == .certificateTooLarge)
            #expect(result.error?.message.contains("unnamed curve") == true)
            #expect(result.error?.sentAlert == (role == .client ? .badCertificate : .decodeError))
            #expect(result.alert == result.error?.sentAlert)
        }
    }

    /// In TLS 1.2, the groups also apply to certificates.
    @Test(arguments: versions, Side.allCases)
    func aCertificateOnTheLargestCurveIsTaken(version: TLSProtocolVersion, role: Side) throws {
        let signer = try ForgedKey(curve: "P-256")
        let result = try handshake(version, role, certificate: ForgedCertificate(ForgedKey(curve: "P-521"), signer: signer))
        #expect(result.error?.code == .unknownIssuer)
    }

    @Test(arguments: versions, Side.allCases)
    func aKeyAnywhereInTheChainCounts(version: TLSProtocolVersion, role: Side) throws {
        let honest = try ForgedKey(curve: "P-256")
        let keys = [
            try ForgedKey(rsaBits: 9000), try ForgedKey(rsaBits: 9000, kind: "RSA-PSS"),
            try ForgedKey(rsaBits: 2048, exponentBits: 2000, kind: "RSA-PSS"),
        ]
        for key in keys {
            let large = try ForgedCertificate(key, signer: honest)
            let result = try handshake(version, role, certificate: ForgedCertificate(honest), chain: [large])
            #expect(result.error?.code == .certificateTooLarge)
        }
    }

    /// The same for an intermediate in the chain.
    @Test(arguments: versions, ["DSA", "DH", "DHX"])
    func aKeyOfAnOldKindIsRefused(version: TLSProtocolVersion, kind: String) throws {
        let honest = try ForgedKey(curve: "P-256")
        let old = try ForgedCertificate(ForgedKey(oldKind: kind), signer: honest)
        for role in Side.allCases {
            let result = try handshake(version, role, certificate: ForgedCertificate(honest), chain: [old]) {
                $0.trustEvaluation = .manual
            }
            #expect(!result.engine.isAwaitingTrust)
            #expect(result.error?.code == .certificateTooLarge)
            #expect(result.error?.message.contains("of an unsupported type") == true)
        }
    }

    @Test(arguments: Side.allCases)
    func aKeyAtTheBoundIsJudgedLikeAnyOther(role: Side) throws {
        let signer = try ForgedKey(curve: "P-256")
        for key in [try ForgedKey(rsaBits: 8192), try ForgedKey(rsaBits: 2048, exponentBits: 64), try ForgedKey(curve: "P-521")] {
            let result = try handshake(.tls13, role, certificate: ForgedCertificate(key, signer: signer))
            #expect(result.error?.code == .unknownIssuer)
        }
    }

    @Test func theBoundsOfAChainHaveBounds() throws {
        for bytes in [-1, 0, 1023, 1_048_577, Int.max] {
            var settings = TLSSettings.client(serverName: "a")
            settings.maximumCertificateChainBytes = bytes
            #expect(thrown { try TLSContext.context(for: settings) }?.message.contains("maximumCertificateChainBytes") == true)
        }
        for length in [-1, 0, 101, Int.max] {
            var settings = TLSSettings.client(serverName: "a")
            settings.maximumCertificateChainLength = length
            #expect(thrown { try TLSContext.context(for: settings) }?.message.contains("maximumCertificateChainLength") == true)
        }
        let settings = TLSSettings.client(serverName: "a")
        let context = try TLSContext.context(for: settings)
        for change in [\TLSClientSettings.maximumCertificateChainBytes, \TLSClientSettings.maximumCertificateChainLength] {
            var other = settings
            other[keyPath: change] -= 1
            #expect(try TLSContext.context(for: other) !== context)
        }
    }
}

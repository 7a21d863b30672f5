import AsyncSocketsTesting
import SocketTLS
import Testing

@Suite struct CertificateVerificationTests {
    private func clientError(_ fixture: Fixture) throws -> (client: TLSError?, server: TLSError?) {
        let pair = try fixture.pair()
        pair.shakeHands()
        return (pair.clientError, pair.serverError)
    }

    @Test(arguments: versions)
    func aCertificateForAnotherNameIsRefused(version: TLSProtocolVersion) throws {
        let errors = try clientError(Fixture(version, purpose: .server(names: ["other.example.org"])))
        #expect(errors.client?.code == .hostNameMismatch)
        #expect(errors.client?.fault == .certificate)
        #expect(
            errors.client?.message
                == "the certificate of \"other.example.org\" is for \"other.example.org\", not for \"mail.example.org\"")
        #expect(errors.client?.verifyCode == 62)
        #expect(errors.client?.sentAlert == .badCertificate)
        #expect(errors.server?.code == .peerAlert)
        #expect(errors.server?.alert == errors.client?.sentAlert)
    }

    @Test(arguments: versions)
    func theNameIsNotVerifiedWhenTheSettingsSaySo(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version, purpose: .server(names: ["other.example.org"]))
        fixture.client.verifiesHostName = false
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test(arguments: versions)
    func anExpiredCertificateIsRefused(version: TLSProtocolVersion) throws {
        let errors = try clientError(Fixture(version, validity: .expired))
        #expect(errors.client?.code == .certificateExpired)
        #expect(errors.client?.message.hasPrefix("the certificate of \"mail.example.org\" expired on 2") == true)
        #expect(errors.server?.alert == .certificateExpired)
    }

    @Test(arguments: versions)
    func aCertificateThatIsNotYetValidIsRefused(version: TLSProtocolVersion) throws {
        let errors = try clientError(Fixture(version, validity: .notYetValid))
        #expect(errors.client?.code == .certificateNotYetValid)
        #expect(errors.server?.code == .peerAlert)
    }

    @Test(arguments: versions)
    func aCertificateFromAnUnknownRootIsRefused(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = try Fixture.stranger.roots
        let errors = try clientError(fixture)
        #expect(errors.client?.code == .unknownIssuer)
        #expect(errors.client?.message.contains("\"CN=Test Root\"") == true)
        #expect(errors.server?.alert == .unknownCA)
    }

    @Test(arguments: versions)
    func theSystemsRootsDoNotVouchForATestAuthority(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = .system
        #expect(try clientError(fixture).client?.code == .unknownIssuer)
    }

    @Test(arguments: versions)
    func aChainThroughAnIntermediateIsTrusted(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host])).identity()
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.peerCertificates.map(\.commonName) == [Fixture.host, "Test Intermediate"])
    }

    @Test(arguments: versions)
    func aChainWithoutItsIntermediateIsRefused(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.identity = try TLSIdentity(pem: fixture.authority.issue(.server(names: [Fixture.host])).pem)
        let errors = try clientError(fixture)
        #expect(errors.client?.code == .unknownIssuer)
        #expect(errors.client?.message.contains("Test Intermediate") == true)
    }

    @Test(arguments: versions)
    func aSelfSignedCertificateIsTrustedWhenItIsGivenAsARoot(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        let issued = try CertificateAuthority.selfSigned(.server(names: [Fixture.host]))
        fixture.server.identity = try TLSIdentity(pem: issued.pem)
        let refused = try fixture.pair()
        refused.shakeHands()
        #expect(refused.clientError?.code == .unknownIssuer)
        #expect(refused.clientError?.message.contains("self-signed") == true)
        fixture.client.trustRoots = try .certificates([TLSCertificate(pem: issued.certificatePEM)])
        let accepted = try fixture.pair()
        accepted.shakeHands()
        #expect(accepted.isComplete)
    }

    @Test(arguments: [
        ("mail.example.org.", "mail.example.org"), ("MAIL.example.org", "mail.example.org"),
        ("mail.example.org", "*.example.org"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"), ("fe80::1%eth0", "fe80::1"), ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a", "a"), ("-a.example.org", "-a.example.org"), ("a-.example.org", "*.example.org"),
    ])
    func theNameFits(serverName: String, alternativeName: String) throws {
        let purpose = CertificateAuthority.Purpose.server(names: [alternativeName], commonName: "test")
        let pair = try Fixture(serverName: serverName, purpose: purpose).pair()
        pair.shakeHands()
        #expect(pair.isComplete, "\(pair.clientError.map(\.description) ?? "")")
    }

    @Test(arguments: [
        ("a.b.example.org", "*.example.org"), ("example.org", "*.example.org"), ("mail.example.org", "m*.example.org"),
        ("127.0.0.2", "127.0.0.1"), ("mail.example.org", "127.0.0.1"), ("sub.mail.example.org", "mail.example.org"),
    ])
    func theNameDoesNotFit(serverName: String, alternativeName: String) throws {
        let purpose = CertificateAuthority.Purpose.server(names: [alternativeName], commonName: serverName)
        let pair = try Fixture(serverName: serverName, purpose: purpose).pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
    }

    @Test func aHostNameThatReadsLikeAnAddressIsNone() throws {
        var fixture = try Fixture(serverName: "127.0.0.1")
        fixture.server.identity = try fixture.authority.issue(hostName: "127.0.0.1").identity()
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
    }

    @Test func theCommonNameIsNotAHostName() throws {
        let pair = try Fixture(purpose: .server(names: [], commonName: Fixture.host)).pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
        #expect(pair.clientError?.message.contains("is for no host name") == true)
    }

    @Test func anAddressIsNotSentAsServerName() throws {
        let pair = try Fixture(serverName: "127.0.0.1", purpose: .server(names: ["127.0.0.1"])).pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.serverName == nil)
        #expect(pair.client.session?.serverName == nil)
    }
}

@Suite struct ClientCertificateTests {
    @Test(arguments: versions)
    func aServerThatAsksSeesTheClientsCertificate(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate("alice")
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.peerCertificates.first?.commonName == "alice")
    }

    @Test(arguments: versions)
    func aServerThatDoesNotAskSeesNone(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.showClientCertificate()
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.peerCertificates.isEmpty == true)
    }

    @Test(arguments: versions)
    func aServerThatRequiresOneRefusesAClientWithout(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.required)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .clientCertificateMissing)
        #expect(pair.serverError?.fault == .peer)
        let clientError = version == .tls13 ? pair.client.readAll().end.error : pair.clientError
        #expect(clientError?.alert == (version == .tls13 ? .certificateRequired : .handshakeFailure))
    }

    @Test(arguments: versions)
    func aServerThatMerelyAsksLetsAClientWithoutOneIn(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.optional)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test(arguments: versions, [TLSCertificateRequest.optional, .required])
    func aBadClientCertificateIsRefused(version: TLSProtocolVersion, wish: TLSCertificateRequest) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(wish)
        fixture.client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .unknownIssuer)
        let clientError = version == .tls13 ? pair.client.readAll().end.error : pair.clientError
        #expect(clientError?.alert == .unknownCA)
    }

    @Test(arguments: versions)
    func theClientIsToldWhoseCertificatesAreAccepted(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.optional)
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let peer = try RawPeer(version)
        peer.shakeHands(with: server)
        #expect(peer.acceptedIssuers() == ["/CN=Test Root"])
    }

    @Test(arguments: versions)
    func anExpiredClientCertificateIsRefused(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        fixture.client.identity = try fixture.authority.identity(.client(commonName: "alice"), validity: .expired)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .certificateExpired)
        #expect(pair.serverError?.message.contains("alice") == true)
    }
}

import SocketTLS
import Testing

@Suite struct CertificateVerificationTests {
    private func clientError(_ fixture: Fixture) throws -> (client: TLSError?, server: TLSError?) {
        let pair = try fixture.pair()
        pair.shakeHands()
        return (pair.clientError, pair.serverError)
    }

    @Test(arguments: versions)
    func aCertificateForAnotherNameIsRefused(version: TLSVersion) throws {
        let errors = try clientError(Fixture(version, request: .host("other.example.org")))
        #expect(errors.client?.code == .hostNameMismatch)
        #expect(errors.client?.blame == .certificate)
        #expect(
            errors.client?.message
                == "The certificate of \"other.example.org\" is for \"other.example.org\", and not for \"mail.example.org\".")
        #expect(errors.client?.verifyCode == 62)
        #expect(errors.client?.sentAlert == .badCertificate)
        #expect(errors.server?.code == .peerAlert)
        #expect(errors.server?.alert == errors.client?.sentAlert)
    }

    @Test(arguments: versions)
    func theNameIsNotVerifiedWhenTheSettingsSaySo(version: TLSVersion) throws {
        var fixture = try Fixture(version, request: .host("other.example.org"))
        fixture.client.verifiesHostName = false
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test(arguments: versions)
    func anExpiredCertificateIsRefused(version: TLSVersion) throws {
        let errors = try clientError(Fixture(version, request: .host(Fixture.host, from: -7200, to: -3600)))
        #expect(errors.client?.code == .certificateExpired)
        #expect(errors.client?.message.hasPrefix("The certificate of \"mail.example.org\" expired on 2") == true)
        #expect(errors.server?.alert == .certificateExpired)
    }

    @Test(arguments: versions)
    func aCertificateThatIsNotYetValidIsRefused(version: TLSVersion) throws {
        let errors = try clientError(Fixture(version, request: .host(Fixture.host, from: 3600, to: 7200)))
        #expect(errors.client?.code == .certificateNotYetValid)
        #expect(errors.server?.code == .peerAlert)
    }

    @Test(arguments: versions)
    func aCertificateFromAnUnknownRootIsRefused(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = try .certificates([TestAuthority(name: "Somebody else").certificate])
        let errors = try clientError(fixture)
        #expect(errors.client?.code == .unknownIssuer)
        #expect(errors.client?.message.contains("\"CN=Test Root\"") == true)
        #expect(errors.server?.alert == .unknownCA)
    }

    @Test(arguments: versions)
    func theSystemsRootsDoNotVouchForATestAuthority(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = .system
        #expect(try clientError(fixture).client?.code == .unknownIssuer)
    }

    @Test(arguments: versions)
    func aChainThroughAnIntermediateIsTrusted(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        let intermediate = try fixture.authority.intermediate(name: "Test Intermediate")
        fixture.server.identity = try intermediate.identity(.host(Fixture.host), includingIssuer: true)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.peerCertificates.map(\.commonName) == [Fixture.host, "Test Intermediate"])
    }

    @Test(arguments: versions)
    func aChainWithoutItsIntermediateIsRefused(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        let intermediate = try fixture.authority.intermediate(name: "Test Intermediate")
        fixture.server.identity = try intermediate.identity(.host(Fixture.host))
        let errors = try clientError(fixture)
        #expect(errors.client?.code == .unknownIssuer)
        #expect(errors.client?.message.contains("Test Intermediate") == true)
    }

    @Test(arguments: versions)
    func aSelfSignedCertificateIsTrustedWhenItIsGivenAsARoot(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        let issued = try TestAuthority.selfSigned(.host(Fixture.host))
        fixture.server.identity = try TLSIdentity(pem: issued.certificatePEM + issued.key.pem())
        let refused = try fixture.pair()
        refused.shakeHands()
        #expect(refused.clientError?.code == .unknownIssuer)
        #expect(refused.clientError?.message.contains("self-signed") == true)
        fixture.client.trustRoots = try .certificates([Certificate(pem: issued.certificatePEM)])
        let accepted = try fixture.pair()
        accepted.shakeHands()
        #expect(accepted.isComplete)
    }

    @Test(arguments: [
        ("mail.example.org.", "DNS:mail.example.org"), ("MAIL.example.org", "DNS:mail.example.org"),
        ("mail.example.org", "DNS:*.example.org"), ("127.0.0.1", "IP:127.0.0.1"), ("::1", "IP:::1"),
        ("0:0:0:0:0:0:0:1", "IP:::1"), ("fe80::1%eth0", "IP:fe80::1"), ("xn--bcher-kva.example", "DNS:xn--bcher-kva.example"),
    ])
    func theNameFits(serverName: String, alternativeName: String) throws {
        let request = CertificateRequest(commonName: "test", alternativeNames: alternativeName)
        let pair = try Fixture(serverName: serverName, request: request).pair()
        pair.shakeHands()
        #expect(pair.isComplete, "\(pair.clientError.map(\.description) ?? "")")
    }

    @Test(arguments: [
        ("a.b.example.org", "DNS:*.example.org"), ("example.org", "DNS:*.example.org"),
        ("mail.example.org", "DNS:m*.example.org"),
        ("127.0.0.1", "DNS:127.0.0.1"), ("127.0.0.2", "IP:127.0.0.1"), ("mail.example.org", "IP:127.0.0.1"),
        ("sub.mail.example.org", "DNS:mail.example.org"),
    ])
    func theNameDoesNotFit(serverName: String, alternativeName: String) throws {
        let request = CertificateRequest(commonName: serverName, alternativeNames: alternativeName)
        let pair = try Fixture(serverName: serverName, request: request).pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
    }

    @Test func theCommonNameIsNotAHostName() throws {
        let pair = try Fixture(request: .person(Fixture.host)).pair()
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
        #expect(pair.clientError?.message.contains("is for no host name at all") == true)
    }

    @Test func anAddressIsNotSentAsServerName() throws {
        let request = CertificateRequest(commonName: "test", alternativeNames: "IP:127.0.0.1")
        let pair = try Fixture(serverName: "127.0.0.1", request: request).pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.serverName == nil)
        #expect(pair.client.session?.serverName == nil)
    }
}

@Suite struct ClientCertificateTests {
    @Test(arguments: versions)
    func aServerThatAsksSeesTheClientsCertificate(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate("alice")
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.peerCertificates.first?.commonName == "alice")
    }

    @Test(arguments: versions)
    func aServerThatDoesNotAskSeesNone(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.showClientCertificate()
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.peerCertificates.isEmpty == true)
    }

    @Test(arguments: versions)
    func aServerThatRequiresOneRefusesAClientWithout(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.required)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .clientCertificateMissing)
        #expect(pair.serverError?.blame == .peer)
        let clientError = version == .tls13 ? pair.client.readAll().end.error : pair.clientError
        #expect(clientError?.alert == (version == .tls13 ? .certificateRequired : .handshakeFailure))
    }

    @Test(arguments: versions)
    func aServerThatMerelyAsksLetsAClientWithoutOneIn(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.optional)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test(arguments: versions, [TLSSettings.ClientCertificates.optional, .required])
    func aBadClientCertificateIsRefused(version: TLSVersion, wish: TLSSettings.ClientCertificates) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(wish)
        fixture.client.identity = try TestAuthority(name: "Somebody else").identity(.person("mallory"))
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .unknownIssuer)
        let clientError = version == .tls13 ? pair.client.readAll().end.error : pair.clientError
        #expect(clientError?.alert == .unknownCA)
    }

    @Test(arguments: versions)
    func theClientIsToldWhoseCertificatesAreAccepted(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.optional)
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let peer = try RawPeer(version)
        peer.shakeHands(with: server)
        #expect(peer.acceptedIssuers() == ["/CN=Test Root"])
    }

    @Test(arguments: versions)
    func anExpiredClientCertificateIsRefused(version: TLSVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        fixture.client.identity = try fixture.authority.identity(
            CertificateRequest(commonName: "alice", validFrom: -7200, validTo: -3600))
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .certificateExpired)
        #expect(pair.serverError?.message.contains("alice") == true)
    }
}

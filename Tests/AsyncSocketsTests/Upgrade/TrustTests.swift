import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Trust decisions, and the behavior until a decision is made.
@Suite(.timeLimit(.patient)) struct TrustTests {
    // MARK: - OpenSSL's verdict

    private func failure(client: TLSClientSettings, server: TLSServerSettings) async throws -> (
        client: AsyncSocketError, server: AsyncSocketError
    ) {
        let link = try await Link.make()
        try link.startTLS(client: client, server: server)
        link.client.readData(withTimeout: .patient, tag: 0)
        link.server.readData(withTimeout: .patient, tag: 0)
        let atClient = try await link.atClient.disconnected()
        let atServer = try await link.atServer.disconnected()
        return (try #require(atClient), try #require(atServer))
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func d10ACertificateForAnotherHostIsRejected(_ version: TLSProtocolVersion) async throws {
        let failure = try await failure(
            client: TestCertificates.client().only(version), server: TestCertificates.server(for: ["mail.example.org"]))
        #expect(failure.client.tls?.code == .hostNameMismatch)
        #expect(failure.client.fault == .certificate)
        #expect(failure.client.message.contains("localhost"))
        #expect(failure.server.tls?.code == .peerAlert)
        #expect(failure.server.tls?.alert == .badCertificate)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func anExpiredCertificateIsRefused(_ version: TLSProtocolVersion) async throws {
        let failure = try await failure(
            client: TestCertificates.client().only(version), server: TestCertificates.server(validity: .expired))
        #expect(failure.client.tls?.code == .certificateExpired)
        #expect(failure.client.fault == .certificate)
        #expect(failure.server.tls?.alert == .certificateExpired)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aCertificateThatIsNotYetValidIsRefused(_ version: TLSProtocolVersion) async throws {
        let failure = try await failure(
            client: TestCertificates.client().only(version), server: TestCertificates.server(validity: .notYetValid))
        #expect(failure.client.tls?.code == .certificateNotYetValid)
        #expect(failure.client.fault == .certificate)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func anUnknownRootIsRefused(_ version: TLSProtocolVersion) async throws {
        let stranger = try TestCertificates.stranger.issue(.server(names: ["localhost"]))
        let failure = try await failure(
            client: TestCertificates.client().only(version), server: .server(identity: stranger.identity()).patient)
        #expect(failure.client.tls?.code == .unknownIssuer)
        #expect(failure.client.fault == .certificate)
        #expect(failure.server.tls?.alert == .unknownCA)
    }

    @Test func theSystemRootsDoNotTrustATestAuthority() async throws {
        let failure = try await failure(client: .client(serverName: "localhost").patient, server: TestCertificates.server())
        #expect(failure.client.tls?.code == .unknownIssuer)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func d19AClientCertificateOfAnotherAuthorityIsRefused(_ version: TLSProtocolVersion) async throws {
        let (client, server) = try TestCertificates.mutual(clientFrom: TestCertificates.stranger)
        let failure = try await failure(client: client.only(version), server: server)
        #expect(failure.server.tls?.code == .unknownIssuer)
        #expect(failure.server.fault == .certificate)
        #expect(failure.client.tls?.alert == .unknownCA)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func d19AClientWithoutARequiredCertificateIsRejected(_ version: TLSProtocolVersion) async throws {
        let (_, server) = try TestCertificates.mutual()
        let failure = try await failure(client: TestCertificates.client().only(version), server: server)
        #expect(failure.server.tls?.code == .clientCertificateMissing)
        #expect(failure.client.tls?.code == .peerAlert)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aMissingClientCertificateIsFineWhereOptional(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        let (_, server) = try TestCertificates.mutual(.certificates(.optional))
        try await link.secure(client: TestCertificates.client().only(version), server: server)
        #expect(link.server.tlsSession?.peerCertificates.isEmpty == true)
    }

    @Test func anIPAddressIsVerified() async throws {
        let link = try await Link.make()
        try await link.secure(
            client: TestCertificates.client(for: "127.0.0.1"), server: TestCertificates.server(for: ["127.0.0.1"]))
        let failure = try await failure(
            client: TestCertificates.client(for: "127.0.0.2"), server: TestCertificates.server(for: ["127.0.0.1"]))
        #expect(failure.client.tls?.code == .hostNameMismatch)
    }

    // MARK: - The delegate's verdict

    @Test(arguments: TLSProtocolVersion.tested)
    func theClientsDelegateAcceptsTheServer(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var client = try TestCertificates.client().only(version)
        client.trustEvaluation = .delegate
        try link.startTLS(client: client, server: TestCertificates.server())
        let (trust, answer) = try await link.atClient.asked()
        #expect(trust.chain.first?.dnsNames == ["localhost"])
        #expect(trust.serverName == "localhost")
        #expect(!link.client.isSecure)
        answer(true)
        try await link.atClient.secured()
        try await link.atServer.secured()
        answer(false)
        link.client.write(Data("x"), withTimeout: .patient, tag: 0)
        link.server.readData(toLength: 1, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "x")
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func theClientsDelegateRejects(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var client = try TestCertificates.client().only(version)
        client.trustEvaluation = .delegate
        try link.startTLS(client: client, server: TestCertificates.server())
        let (_, answer) = try await link.atClient.asked()
        answer(false)
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.tls?.code == .trustRejected)
        let atServer = try #require(try await link.atServer.disconnected())
        #expect(atServer.tls?.code == .peerAlert)
    }

    @Test func theDelegateIsNotAskedWhereOpenSSLHasSaidNo() async throws {
        let link = try await Link.make()
        var client = try TestCertificates.client()
        client.trustEvaluation = .delegate
        try link.startTLS(client: client, server: TestCertificates.server(for: ["mail.example.org"]))
        guard case .disconnected(let error) = await link.atClient.next() else {
            Issue.record("the delegate was asked")
            return
        }
        #expect(error?.tls?.code == .hostNameMismatch)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aManualDecisionCanAcceptAPeerThatOpenSSLRejects(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var client = TLSSettings.client(serverName: "localhost").only(version).patient
        client.trustRoots = try TestCertificates.stranger.roots
        client.trustEvaluation = .manual
        try link.startTLS(client: client, server: TestCertificates.server())
        let (trust, answer) = try await link.atClient.asked()
        guard case .untrusted = trust.verdict else {
            Issue.record("OpenSSL trusts a stranger")
            return
        }
        answer(true)
        try await link.atClient.secured()
    }

    @Test func theDefaultAnswerIsNo() async throws {
        final class Silent: AsyncSocketDelegate, Sendable {}
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let silent = Silent()
        let client = AsyncSocket(inlineDelegate: silent)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        var settings = try TestCertificates.client()
        settings.trustEvaluation = .manual
        try client.beginTLS(settings: settings)
        let server = try await atListener.accepted()
        try server.beginTLS(settings: TestCertificates.server())
        #expect(try await atListener.disconnected()?.tls?.code == .peerAlert)
        _ = silent
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func noDataPassesTheServerBeforeTheTrustDecision(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var (client, server) = try TestCertificates.mutual()
        server.trustEvaluation = .delegate
        try link.startTLS(client: client.only(version), server: server)
        link.client.write(Data("too early?\r\n"), withTimeout: .patient, tag: 0)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        link.server.write(Data("not yet\r\n"), withTimeout: .patient, tag: 1)
        let (trust, answer) = try await link.atServer.asked()
        #expect(trust.chain.first?.commonName == "alice")
        if version == .tls13 {
            // The client already considers the connection secure, as RFC 8446 allows, and has sent its line.
            try await link.atClient.secured()
            #expect(try await link.atClient.wrote() == 0)
        }
        #expect(link.atServer.unread.isEmpty)
        #expect(!link.server.isSecure)
        answer(true)
        try await link.atServer.secured()
        #expect(try await link.atServer.readText() == "too early?\r\n")
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        if version == .tls12 { try await link.atClient.secured() }
        #expect(try await link.atClient.readText() == "not yet\r\n")
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func nothingPassesTheServersGateAfterANo(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var (client, server) = try TestCertificates.mutual()
        server.trustEvaluation = .delegate
        try link.startTLS(client: client.only(version), server: server)
        link.client.write(Data("secret\r\n"), withTimeout: .patient, tag: 0)
        link.client.readData(withTimeout: -1, tag: 0)
        link.server.readData(withTimeout: -1, tag: 0)
        link.server.write(Data("forbidden"), withTimeout: -1, tag: 0)
        let (_, answer) = try await link.atServer.asked()
        answer(false)
        let error = try #require(try await link.atServer.disconnected())
        #expect(error.tls?.code == .trustRejected)
        #expect(try await link.atClient.disconnected() != nil)
    }
}

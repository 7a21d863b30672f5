import AsyncSocketsTesting
import SocketTLS
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct EnginePairTests {
    static let versions: [TLSProtocolVersion] = [.tls12, .tls13]

    private let authority: CertificateAuthority
    private let server: TLSServerSettings

    init() throws {
        authority = try CertificateAuthority()
        server = try .server(identity: authority.issue(.server(names: ["localhost", "127.0.0.1", "*.example.org"])).identity())
    }

    private func client(_ name: String = "localhost", _ version: TLSProtocolVersion = .tls13) throws -> TLSClientSettings {
        var settings = try authority.clientSettings(serverName: name)
        settings.maximumVersion = version
        return settings
    }

    @Test(arguments: versions, [1, 7, Int.max])
    func handshakeAndDataPassInAnyPieces(_ version: TLSProtocolVersion, _ chunk: Int) throws {
        let pair = try EnginePair(client("localhost", version), server, chunk: chunk)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.protocolVersion == version)
        // More than fits in one record.
        let text = Array(String(repeating: "0123456789", count: 1700).utf8)
        #expect(try pair.exchange(text, from: .client) == text)
        #expect(try pair.exchange(text, from: .server) == text)
        #expect(pair.original == pair.delivered)
        #expect(pair.original.fromClient.count > text.count)
    }

    @Test(arguments: ["127.0.0.1", "mail.example.org"])
    func issuedIdentityIsAcceptedForItsOtherNames(_ name: String) throws {
        let pair = try EnginePair(client(name), server)
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test func wrongHostIsRefused() throws {
        let pair = try EnginePair(client("other.test"), server)
        pair.shakeHands()
        #expect(pair.clientError?.code == .hostNameMismatch)
    }

    @Test(arguments: [
        (CertificateAuthority.Validity.expired, TLSError.Code.certificateExpired), (.notYetValid, .certificateNotYetValid),
    ])
    func certificateOutsideItsTimeIsRefused(_ validity: CertificateAuthority.Validity, _ code: TLSError.Code) throws {
        let issued = try authority.issue(.server(names: ["localhost"]), validity: validity)
        let pair = try EnginePair(client(), .server(identity: issued.identity()))
        pair.shakeHands()
        #expect(pair.clientError?.code == code)
    }

    @Test func clientCertificateIsAccepted() throws {
        var client = try client()
        client.identity = try authority.issue(.client(commonName: "Ada", email: "ada@example.org")).identity()
        var server = server
        server.clients = .certificates(.required)
        server.trustRoots = try authority.roots
        let pair = try EnginePair(client, server)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.peerCertificates.first?.commonName == "Ada")
    }

    @Test func heldHandshakeGoesOnWhenTheSignalIsGiven() throws {
        let signal = try TestSignal()
        let pair = try EnginePair(client(), server, fromServer: [.hold(at: 50, until: signal)])
        pair.shakeHands()
        #expect(!pair.isComplete)
        #expect(pair.delivered.fromServer.count == 50)
        signal.fire()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test func truncatedHandshakeFailsWhereTheBytesEnd() throws {
        let pair = try EnginePair(client(), server, fromServer: [.truncate(at: 50)])
        pair.shakeHands()
        #expect(pair.clientError?.code == .closedDuringHandshake)
        #expect(pair.delivered.fromServer.count == 50)
    }

    @Test func droppedByteBreaksTheHandshake() throws {
        let pair = try EnginePair(client(), server, fromServer: [.drop(60..<61)])
        pair.shakeHands()
        #expect(!pair.isComplete)
    }

    @Test func injectedPlaintextIsNotTLS() throws {
        let pair = try EnginePair(client(), server, fromServer: [.inject(Array("250 injected\r\n".utf8), at: 0)])
        pair.shakeHands()
        #expect(pair.clientError?.code == .notTLS)
    }

    @Test func resetStopsBothDirectionsInSilence() throws {
        let pair = try EnginePair(client(), server, fromServer: [.reset(at: 50)])
        pair.shakeHands()
        #expect(!pair.isComplete)
        #expect(pair.clientError == nil)
        #expect(!pair.carry())
    }

    @Test func trustQuestionsAreKeptAndDecided() throws {
        var client = try client("other.test")
        client.trustEvaluation = .manual
        let pair = try EnginePair(client, server)
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientQuestions.count == 1)
        #expect(pair.clientQuestions.first?.serverName == "other.test")
    }
}

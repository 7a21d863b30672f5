import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Attacks on the promises in SECURITY.md, in both styles. Tests/promises.list lists all such tests.
@Suite(.timeLimit(.patient), .ownThreads) struct PromiseTests {
    private let listener: RawSocket

    init() throws {
        listener = try RawSocket.listening()
    }

    // MARK: - Upgrades

    @Test(arguments: Style.allCases) func plaintextInjectedIntoAClientEndsIt(style: Style) async throws {
        let (attacker, client) = try StyledSocket.attacked(style)
        try attacker.send("220 go\n250 injected\n")
        #expect(try await client.readLine() == "220 go")
        let refusal = try await StyledSocket.refusal { try await client.startTLS(TestCertificates.client()) }
        #expect(refusal?.code == .earlyPlaintext)
        #expect(refusal?.fault == .peer)
        let isOver = await client.isOver
        #expect(isOver)
    }

    @Test(arguments: Style.allCases) func plaintextInjectedIntoAServerEndsIt(style: Style) async throws {
        let (attacker, server) = try StyledSocket.attacked(style)
        try attacker.send("STARTTLS\nMAIL FROM:<evil>\n")
        #expect(try await server.readLine() == "STARTTLS")
        let refusal = try await StyledSocket.refusal { try await server.startTLS(TestCertificates.server()) }
        #expect(refusal?.tls?.code == .notTLS)
        #expect(refusal?.fault == .peer)
        let isOver = await server.isOver
        #expect(isOver)
    }

    /// After a failed handshake, nothing can be sent or received in plaintext.
    @Test(arguments: Style.allCases) func afterAFailedUpgradeNothingIsSent(style: Style) async throws {
        let (attacker, client) = try StyledSocket.attacked(style)
        async let refusal = StyledSocket.refusal { try await client.startTLS(TestCertificates.client()) }
        #expect(try attacker.receive().first == 0x16)
        try attacker.send("454 TLS not available\n")
        #expect(try await refusal?.tls?.code == .notTLS)
        let isOver = await client.isOver
        #expect(isOver)
        #expect(try !attacker.receiveAll().contains("a secret"))
    }

    // MARK: - Trust

    /// Defects of a peer's certificate.
    enum Fault: CaseIterable, Sendable {
        case unknownRoot, wrongName, expired, notYetValid, zeroInName

        func settings() throws -> TLSServerSettings {
            switch self {
            case .unknownRoot: .server(identity: try TestCertificates.stranger.issue(.server(names: ["localhost"])).identity())
            case .wrongName: try TestCertificates.server(for: ["elsewhere.example.org"])
            case .expired: try TestCertificates.server(validity: .expired)
            case .notYetValid: try TestCertificates.server(validity: .notYetValid)
            case .zeroInName: try TestCertificates.server(for: ["localhost.example.org"])
            }
        }
    }

    @Test(arguments: Fault.allCases, Style.allCases)
    func aServerWithABadCertificateIsRefused(fault: Fault, style: Style) async throws {
        let (client, server) = try await StyledSocket.pair(style, through: listener)
        let refused = Task { try await StyledSocket.refusal { try await server.startTLS(fault.settings()) } }
        let refusal = try await StyledSocket.refusal { try await client.startTLS(TestCertificates.client()) }
        #expect(refusal?.fault == .certificate, "\(String(describing: refusal))")
        #expect(refusal?.tls?.sentAlert != nil)
        let isOver = await client.isOver
        #expect(isOver)
        _ = await refused.result
    }

    @Test(arguments: TLSProtocolVersion.tested, Style.allCases)
    func aClientWithoutAGoodCertificateIsRefused(version: TLSProtocolVersion, style: Style) async throws {
        for isStranger in [false, true] {
            var (clientSettings, serverSettings) = try TestCertificates.mutual(clientFrom: TestCertificates.stranger)
            if !isStranger { clientSettings.identity = nil }
            clientSettings = clientSettings.only(version)
            serverSettings.trustEvaluation = .builtIn
            let (client, server) = try await StyledSocket.pair(style, through: listener)
            let speaking = Task { [clientSettings] in
                try await client.startTLS(clientSettings)
                try await client.write("DELETE\n")
            }
            let refusal = try await StyledSocket.refusal { [serverSettings] in try await server.startTLS(serverSettings) }
            #expect(refusal?.tls?.code == (isStranger ? .unknownIssuer : .clientCertificateMissing))
            let isOver = await server.isOver
            #expect(isOver)
            _ = await speaking.result
        }
    }

    // MARK: - Sessions

    /// The side that does not enable resumption.
    enum Unresumed: CaseIterable, Sendable {
        case server, client, none
    }

    @Test(arguments: Unresumed.allCases, Style.allCases)
    func onlyWhoAsksForItResumes(unresumed: Unresumed, style: Style) async throws {
        var serverSettings = try TestCertificates.server()
        if unresumed != .server { serverSettings.sessionTickets = .issued(2) }
        var clientSettings = try TestCertificates.client()
        // A store of its own, unlike that of the process.
        clientSettings.resumption = unresumed == .client ? .none : .store(TLSInMemorySessionStore())
        for round in 0..<2 {
            let (client, server) = try await StyledSocket.pair(style, through: listener)
            let serving = Task { [serverSettings] in
                try await server.startTLS(serverSettings)
                try await server.write("hello\n")
                return server.socket.tlsSession?.isResumed
            }
            try await client.startTLS(clientSettings)
            #expect(try await client.readLine() == "hello")
            let isResumed = unresumed == .none && round == 1
            #expect(client.socket.tlsSession?.isResumed == isResumed)
            #expect(try await serving.value == isResumed)
        }
    }

    // MARK: - Ends

    @Test(arguments: TLSProtocolVersion.tested, Style.allCases)
    func aCutIsNoEnd(version: TLSProtocolVersion, style: Style) async throws {
        for isCut in [false, true] {
            let peer = try ScriptedPeer.listening(
                [.startTLS(try TestCertificates.server()), .send("half a")] + (isCut ? [.finish] : [.sendCloseNotify, .finish]))
            let raw = try RawSocket.connected(to: .loopback(port: peer.port))
            let client = try StyledSocket(style, adopting: raw)
            try await client.startTLS(TestCertificates.client().only(version))
            let refusal = try await StyledSocket.refusal {
                do { _ = try await client.readLine() } catch is StyledSocket.Ended {}
            }
            #expect((refusal?.code == .truncated) == isCut, "\(String(describing: refusal))")
        }
    }

    // MARK: - Proxies

    @Test(arguments: ["a\r\nX: y", "a\nb", "a\0b"], Style.allCases)
    func nothingEndsALineOfARequest(name: String, style: Style) async throws {
        let socket = AsyncSocket()
        let credentials = SocketProxy.Credentials(username: name, password: "")
        socket.proxy = .http(host: "127.0.0.1", port: try listener.localPort, credentials: credentials)
        let refusal = try await StyledSocket.refusal {
            switch style {
            case .task: try await socket.connect(to: "example.org", port: 80)
            case .delegate: try socket.connect(toHost: "example.org", onPort: 80, withTimeout: .patient)
            }
        }
        #expect(refusal?.code == .badParameter)
        #expect(!listener.hasInput)
    }

    // MARK: - Limits

    @Test(arguments: Style.allCases) func aLineWithoutAnEndIsBounded(style: Style) async throws {
        let (attacker, server) = try StyledSocket.attacked(style)
        let sending = Task(executorPreference: TestThreads()) {
            for _ in 0..<1_024 { try attacker.send([UInt8](repeating: 0x61, count: 65_536)) }
        }
        let refusal = try await StyledSocket.refusal { _ = try await server.readLine() }
        #expect(refusal?.code == .readMaxedOut)
        // The rest is not received.
        await #expect(throws: (any Error).self) { try await sending.value }
    }
}

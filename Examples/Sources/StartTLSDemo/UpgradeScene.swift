internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import Synchronization

/// The main scene: upgrades a plaintext connection to TLS, with the recorder between the two sides.
struct UpgradeScene {
    /// The implementation of one side.
    enum Player {
        case ours
        case openSSL
    }

    private let stage: Stage
    private let server: Player
    private let client: Player

    init(_ stage: Stage, server: Player, client: Player) {
        self.stage = stage
        self.server = server
        self.client = client
    }

    func play() async throws -> Verdict {
        stage.screen.title("A live connection becomes TLS")
        return switch (server, client) {
        case (.openSSL, _): try await playWithOpenSSLServer()
        case (_, .openSSL): try await playWithOpenSSLClient()
        case (.ours, .ours): try await playOurs()
        }
    }

    private func playOurs() async throws -> Verdict {
        let server = try MailServer(screen: stage.screen, settings: stage.serverSettings())
        let recorder = try RecorderProcess(target: server.port, folder: stage.folder)
        stage.screen.note("server on port \(server.port), recorder (process \(recorder.identifier)) on port \(recorder.port)")
        let client = try MailClient(screen: stage.screen, settings: stage.clientSettings(), port: recorder.port)
        let endings = (client: await client.ending.wait(), server: await server.ending.wait())
        var verdict = Verdict()
        check(clientEnded: endings.client, client, &verdict)
        verdict.check(
            server.commands.withLock { $0.contains("NOOP \(MailClient.secret)") },
            "the server received the secret and replied to it", on: stage.screen)
        verdict.check(
            client.answers.withLock { $0.contains("250 hello alice") },
            "the server identified the client by its certificate", on: stage.screen)
        verdict.check(
            endings.server == nil || endings.server?.code == .closedByPeer,
            "the connection closed cleanly for the server", on: stage.screen)
        try await check(recorder.recordings(), &verdict)
        return verdict
    }

    private func playWithOpenSSLServer() async throws -> Verdict {
        let openSSL = try OpenSSLServer(stage)
        let porter = try StartTLSPorter(inFrontOf: openSSL.port)
        let recorder = try RecorderProcess(target: porter.port, folder: stage.folder)
        stage.screen.note("openssl s_server on port \(openSSL.port), behind a relay that handles the plaintext exchange")
        let client = try MailClient(screen: stage.screen, settings: stage.clientSettings(), port: recorder.port)
        var verdict = Verdict()
        check(clientEnded: await client.ending.wait(), client, &verdict)
        verdict.check(
            client.answers.withLock { $0.contains(String("NOOP \(MailClient.secret)".reversed())) },
            "openssl s_server received the secret and echoed it reversed", on: stage.screen)
        await openSSL.stop()
        try await check(recorder.recordings(), &verdict)
        return verdict
    }

    private func playWithOpenSSLClient() async throws -> Verdict {
        let server = try MailServer(screen: stage.screen, settings: stage.serverSettings())
        let recorder = try RecorderProcess(target: server.port, folder: stage.folder)
        stage.screen.note("the client is openssl s_client -starttls smtp")
        let client = try OpenSSLClient(stage, port: recorder.port, lines: ["NOOP \(MailClient.secret)", "QUIT"])
        _ = await server.ending.wait()
        var verdict = Verdict()
        verdict.check(await client.exitStatus() == 0, "openssl s_client verified the server and exited with 0", on: stage.screen)
        verdict.check(
            server.commands.withLock { $0.contains("NOOP \(MailClient.secret)") }, "the server got the secret", on: stage.screen)
        try await check(recorder.recordings(), &verdict)
        return verdict
    }

    private func check(clientEnded error: AsyncSocketError?, _ client: MailClient, _ verdict: inout Verdict) {
        // The server sends close_notify and closes after its last reply, unless the client closes first.
        verdict.check(
            error == nil || error?.code == .closedByPeer, "the connection closed cleanly for the client", on: stage.screen)
        verdict.check(client.session != nil, "the client is secure and has verified the host name", on: stage.screen)
    }

    /// Checks that the recording is plaintext up to the end of the STARTTLS exchange, and only TLS after it.
    private func check(_ recordings: (fromClient: Recording, fromServer: Recording), _ verdict: inout Verdict) throws {
        let (fromClient, fromServer) = recordings
        guard let clientOffset = fromClient.plaintextCount(upTo: "STARTTLS\r\n"),
            let serverOffset = fromServer.plaintextCount(upTo: "start TLS\r\n")
        else { return verdict.check(false, "STARTTLS and the server's go-ahead were recorded in plaintext", on: stage.screen) }
        stage.screen.step(
            "recorder",
            "client: \(clientOffset) bytes of plaintext, then \(fromClient.bytes.count - clientOffset) of TLS; "
                + "server: \(serverOffset), then \(fromServer.bytes.count - serverOffset)")
        verdict.check(true, "STARTTLS and the server's go-ahead were recorded in plaintext", on: stage.screen)
        let clientRecords = fromClient.records(from: clientOffset)
        let serverRecords = fromServer.records(from: serverOffset)
        verdict.check(
            clientRecords?.isEmpty == false && serverRecords?.isEmpty == false,
            "after it, only TLS records in both directions (\(clientRecords?.count ?? 0) and \(serverRecords?.count ?? 0))",
            on: stage.screen)
        verdict.check(clientRecords?.first?.isClientHello == true, "the first of them is the ClientHello", on: stage.screen)
        verdict.check(
            !fromClient.contains("swordfish") && !fromServer.contains("hsifdrows"),
            "the secret is in neither recording", on: stage.screen)
    }
}

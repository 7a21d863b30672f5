internal import AsyncSockets
internal import Foundation
internal import Synchronization

/// The man in the middle injects a reply behind the server's go-ahead, so that the client might take it for
/// an encrypted one.
struct ResponseInjectionScene {
    private let stage: Stage

    init(_ stage: Stage) {
        self.stage = stage
    }

    func play() async throws -> Verdict {
        stage.screen.title("Attack: a plaintext reply injected behind the server's go-ahead")
        let injected = "250 hello, now send your password in the clear\r\n"
        let server = try MailServer(screen: stage.screen, settings: stage.serverSettings())
        let recorder = try RecorderProcess(target: server.port, folder: stage.folder, injection: ["--inject-response", injected])
        let client = try MailClient(screen: stage.screen, settings: stage.clientSettings(), port: recorder.port)
        let error = await client.ending.wait()
        _ = await server.ending.wait()
        _ = try await recorder.recordings()
        var verdict = Verdict()
        verdict.check(
            error?.code == .earlyPlaintext && error?.fault == .peer,
            "the client refused: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            error?.message.contains("\(injected.utf8.count)") == true, "it counted the \(injected.utf8.count) injected bytes",
            on: stage.screen)
        verdict.check(
            client.answers.withLock { answers in !answers.contains { $0.contains("password") } },
            "the injected reply was not delivered", on: stage.screen)
        verdict.check(client.session == nil, "the connection was never secure", on: stage.screen)
        return verdict
    }
}

/// The man in the middle injects a command behind the client's STARTTLS, so that the server might take it for
/// an encrypted one.
struct CommandInjectionScene {
    private let stage: Stage

    init(_ stage: Stage) {
        self.stage = stage
    }

    func play() async throws -> Verdict {
        stage.screen.title("Attack: a plaintext command injected behind the client's STARTTLS")
        let server = try MailServer(screen: stage.screen, settings: stage.serverSettings())
        let recorder = try RecorderProcess(
            target: server.port, folder: stage.folder, injection: ["--inject-command", "MAIL FROM:<evil@example.org>\r\n"])
        let client = try MailClient(screen: stage.screen, settings: stage.clientSettings(), port: recorder.port)
        let error = await server.ending.wait()
        _ = await client.ending.wait()
        _ = try await recorder.recordings()
        var verdict = Verdict()
        verdict.check(
            error?.tls?.code == .notTLS && error?.fault == .peer,
            "the server refused: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            server.commands.withLock { commands in !commands.contains { $0.contains("evil") } },
            "the injected command was not delivered", on: stage.screen)
        return verdict
    }
}

/// A server has a good certificate, but for another host than the client expects.
struct WrongHostScene {
    private let stage: Stage

    init(_ stage: Stage) {
        self.stage = stage
    }

    func play() async throws -> Verdict {
        stage.screen.title("Attack: a certificate for another host")
        let server = try MailServer(screen: stage.screen, settings: stage.serverSettings())
        let recorder = try RecorderProcess(target: server.port, folder: stage.folder)
        stage.screen.note(
            "the client expects mail.example.org; the certificate is for localhost, from an authority that the client trusts")
        let client = try MailClient(
            screen: stage.screen, settings: stage.clientSettings(for: "mail.example.org"), port: recorder.port)
        let error = await client.ending.wait()
        let serverError = await server.ending.wait()
        _ = try await recorder.recordings()
        var verdict = Verdict()
        verdict.check(
            error?.tls?.code == .hostNameMismatch && error?.fault == .certificate,
            "the client refused: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            serverError?.tls?.code == .peerAlert,
            "the server received the reason: \(serverError?.tls?.alert?.description ?? "it did not")", on: stage.screen)
        verdict.check(client.session == nil, "the connection was never secure", on: stage.screen)
        return verdict
    }
}

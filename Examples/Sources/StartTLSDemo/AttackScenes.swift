internal import AsyncSockets
internal import Foundation
internal import Synchronization

/// A man in the middle injects a plaintext reply after the server's go-ahead. A vulnerable client would treat
/// it as encrypted.
struct ResponseInjectionScene {
    private let stage: Stage

    init(_ stage: Stage) {
        self.stage = stage
    }

    func play() async throws -> Verdict {
        stage.screen.title("Attack: a plaintext reply injected after the server's go-ahead")
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
            "the client rejected the connection: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            error?.message.contains("\(injected.utf8.count)") == true, "it reported \(injected.utf8.count) injected bytes",
            on: stage.screen)
        verdict.check(
            client.answers.withLock { answers in !answers.contains { $0.contains("password") } },
            "the injected reply was not delivered", on: stage.screen)
        verdict.check(client.session == nil, "the connection was never secure", on: stage.screen)
        return verdict
    }
}

/// A man in the middle injects a plaintext command after the client's STARTTLS. A vulnerable server would
/// treat it as encrypted.
struct CommandInjectionScene {
    private let stage: Stage

    init(_ stage: Stage) {
        self.stage = stage
    }

    func play() async throws -> Verdict {
        stage.screen.title("Attack: a plaintext command injected after the client's STARTTLS")
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
            "the server rejected the connection: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            server.commands.withLock { commands in !commands.contains { $0.contains("evil") } },
            "the injected command was not delivered", on: stage.screen)
        return verdict
    }
}

/// The server's certificate is valid, but for a different host than the client expects.
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
            "the client rejected the connection: \(error?.message ?? "it did not")", on: stage.screen)
        verdict.check(
            serverError?.tls?.code == .peerAlert,
            "the server received the reason: \(serverError?.tls?.alert?.description ?? "it did not")", on: stage.screen)
        verdict.check(client.session == nil, "the connection was never secure", on: stage.screen)
        return verdict
    }
}

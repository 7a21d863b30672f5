import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

@Suite(.timeLimit(.minutes(1))) struct StartTLSTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
    }

    @Test(arguments: StartTLSName.allCases) func bothSidesUpgrade(name: StartTLSName) async throws {
        let server = try await SockcatServer(
            "listen --echo --starttls \(name.rawValue) --cert server.pem --key server.key localhost:0", in: folder)
        let outcome = try await SockcatProcess.run(
            "connect -v --starttls \(name.rawValue) --ca ca.pem localhost \(server.port)", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        #expect(outcome.errors.contains("* secure: TLSv1.3"))
        await server.stop()
    }

    @Test func theUpgradeWorksWithOpenSSL() async throws {
        let server = try await SockcatServer(
            "listen --exec 'echo over TLS' --starttls imap --cert server.pem --key server.key localhost:0", in: folder)
        let outcome = try await SockcatProcess.shell(
            "openssl s_client -quiet -starttls imap -CAfile ca.pem -verify_return_error -connect localhost:\(server.port)",
            in: folder)
        #expect(outcome.output.contains("over TLS"))
        await server.stop()
    }

    @Test func aServerThatIgnoresTheRequestExceedsTheTimeLimit() async throws {
        let server = try await SockcatServer("listen --exec 'cat > /dev/null' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect --starttls irc --timeout 200ms 127.0.0.1 \(server.port)", in: folder)
        #expect(outcome.status == ExitStatus.timedOut.rawValue)
        #expect(outcome.errors.contains("IRC: the dialogue before TLS was not complete within 0.2 s"))
        await server.stop()
    }

    /// The hints for servers without TLS recommend --starttls, which was given.
    @Test(arguments: [("250 injected", "30s", SockcatCommands.ExitStatus.handshakeFailed), ("", "1s", .timedOut)])
    func noHintRecommendsWhatWasGiven(rest: String, timeout: String, status: SockcatCommands.ExitStatus) async throws {
        let replies = ["220 ready", "250-localhost\\r\\n250 STARTTLS", "220 go ahead" + (rest.isEmpty ? "" : "\\r\\n\(rest)")]
        try folder.write(
            replies.map { "printf '\($0)\\r\\n'" }.joined(separator: "; read line; ") + "; cat >/dev/null", to: "dialogue")
        let server = try await SockcatServer("listen --exec 'sh dialogue' 127.0.0.1:0", in: folder)
        for command in ["connect", "inspect --no-probes"] {
            let outcome = try await SockcatProcess.run(
                "\(command) --starttls smtp --timeout \(timeout) 127.0.0.1 \(server.port)", in: folder)
            #expect(outcome.status == status.rawValue, "\(outcome)")
            #expect((outcome.errors + outcome.output).contains("arrived too early") == !rest.isEmpty, "\(outcome)")
            #expect(!(outcome.errors + outcome.output).contains("--starttls"), "\(outcome)")
        }
        await server.stop()
    }

    @Test func aRelayWithOneUpgradeGreetsTheClientOnce() async throws {
        let target = try await SockcatServer(
            "listen --exec 'printf \"220-two\\r\\n220 lines\\r\\n\"; cat' 127.0.0.1:0", in: folder)
        let inner = try await SockcatServer(
            "relay --listen localhost:0 --listen-starttls smtp --cert server.pem --key server.key --to 127.0.0.1:\(target.port)",
            in: folder)
        let outer = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --to localhost:\(inner.port) --to-starttls smtp --to-ca ca.pem", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(outer.port)", input: "EHLO me\n", in: folder)
        #expect(Array(outcome.output.utf8) == Array("220 ready\r\nEHLO me\n".utf8))
        for server in [outer, inner, target] { await server.stop() }
    }
}

import AsyncSocketsTesting
import Testing

@testable import SockcatCommands

/// A relay does not start if no connection to its target can use the settings.
@Suite(.timeLimit(.minutes(2))) struct RelayTargetTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        try folder.issue(.client(commonName: "ada"), by: CertificateAuthority(), to: "client")
        try folder.issue(.client(commonName: "eve"), by: CertificateAuthority(), to: "other")
    }

    @Test(arguments: [
        ("--to-cipher-suite TLS_NONE", ExitStatus.usage, "TLS_NONE"), ("--to-ca none.pem", .fileFailed, "none.pem"),
        ("--to-ca /proc/none/", .fileFailed, "/proc/none"), ("--to-cert none.pem", .fileFailed, "none.pem"),
        ("--to-cert client.pem --to-key other.key", .fileFailed, "key"), ("--to-psk @none", .fileFailed, "none"),
        ("--to-sni 'a b'", .usage, "a b"), ("--to-alpn ''", .usage, "ALPN"),
    ])
    func settingsThatCanNeverWork(option: String, status: SockcatCommands.ExitStatus, message: String) async throws {
        for upgrade in ["--to-tls", "--to-starttls smtp"] {
            let outcome = try await SockcatProcess.run(
                "relay --listen localhost:0 --to localhost:1 \(upgrade) \(option)", in: folder)
            #expect(outcome.status == status.rawValue, "\(outcome)")
            #expect(outcome.errors.contains(message) && !outcome.errors.contains("listening on"), "\(outcome)")
        }
    }

    @Test func aTargetWithoutAName() async throws {
        let outcome = try await SockcatProcess.run("relay --listen localhost:0 --to unix:target --to-tls", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue)
        #expect(outcome.errors.contains("hint: pass the expected name with --to-sni"), "\(outcome)")
    }

    /// The initializer throws if the relay does not start.
    @Test(arguments: [
        "unix:target --to-tls --to-sni localhost", "localhost:1 --to-tls --to-ca ca.pem --to-cert client.pem --to-key client.key",
        "127.0.0.1:1 --to-tls --to-insecure", "localhost:1 --to-starttls imap --to-psk ada:00112233445566778899aabbccddeeff",
        "localhost:1 --to-tls --to-dane", "localhost:1 --to-tls --to-tlsa '3 1 1 \(String(repeating: "ab", count: 32))'",
        "localhost:1 --to-tls --to-tls-version 1.2 --to-alpn h2",
    ])
    func settingsThatMayWork(options: String) async throws {
        let relay = try await SockcatServer("relay --listen localhost:0 --to \(options)", in: folder)
        await relay.stop()
    }
}

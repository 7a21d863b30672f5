internal import ArgumentParser

/// Upgrades a loopback connection to TLS, and records its bytes in another process to prove it.
@main
struct StartTLSDemo: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "starttls-demo",
        abstract: "Upgrades a live connection to TLS, and shows that three attacks on the upgrade fail.",
        subcommands: [Run.self, Record.self],
        defaultSubcommand: Run.self
    )
}

/// Runs all scenes.
struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Runs the demo (the default).")

    @Flag(name: .customLong("openssl-server"), help: "Use `openssl s_server` as the server.")
    var usesOpenSSLServer = false

    @Flag(name: .customLong("openssl-client"), help: "Use `openssl s_client` as the client.")
    var usesOpenSSLClient = false

    @Flag(name: .customLong("tls12"), help: "Allow TLS 1.2 only.")
    var isTLS12Only = false

    func validate() throws {
        if usesOpenSSLServer, usesOpenSSLClient {
            throw ValidationError(
                "Use only one of --openssl-server and --openssl-client: with OpenSSL on both sides this library is not used.")
        }
    }

    func run() async throws {
        let screen = Screen()
        let stage = try Stage(screen: screen, isTLS12Only: isTLS12Only)
        defer { stage.clear() }
        var verdicts = [
            try await UpgradeScene(
                stage, server: usesOpenSSLServer ? .openSSL : .ours, client: usesOpenSSLClient ? .openSSL : .ours
            ).play()
        ]
        if !usesOpenSSLServer, !usesOpenSSLClient {
            verdicts.append(try await ResponseInjectionScene(stage).play())
            verdicts.append(try await CommandInjectionScene(stage).play())
            verdicts.append(try await WrongHostScene(stage).play())
        }
        screen.title("Result")
        let failures = verdicts.flatMap(\.failures)
        for failure in failures { screen.failure(failure) }
        guard failures.isEmpty else { throw ExitCode.failure }
        screen.success("all \(verdicts.map(\.checks).reduce(0, +)) checks passed")
    }
}

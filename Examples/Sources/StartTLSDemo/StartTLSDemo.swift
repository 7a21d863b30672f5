internal import ArgumentParser

/// Upgrades a connection to TLS on loopback, and proves it with a recorder in another process.
@main
struct StartTLSDemo: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "starttls-demo",
        abstract: "Shows a live connection become TLS, and three attacks on it fail.",
        subcommands: [Run.self, Record.self],
        defaultSubcommand: Run.self
    )
}

/// The demonstration.
struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Runs the demonstration (the default).")

    @Flag(name: .customLong("openssl-server"), help: "Let `openssl s_server` take the server's place.")
    var usesOpenSSLServer = false

    @Flag(name: .customLong("openssl-client"), help: "Let `openssl s_client` take the client's place.")
    var usesOpenSSLClient = false

    @Flag(name: .customLong("tls12"), help: "Allow TLS 1.2 only.")
    var isTLS12Only = false

    func validate() throws {
        if usesOpenSSLServer, usesOpenSSLClient {
            throw ValidationError(
                "Use only one of --openssl-server and --openssl-client: with OpenSSL on both sides this library has no part.")
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

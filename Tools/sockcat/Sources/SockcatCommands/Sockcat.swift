public import ArgumentParser
internal import Glibc

/// The command `sockcat`.
public struct Sockcat: AsyncParsableCommand {
    /// The name, the help text and the subcommands.
    public static let configuration = CommandConfiguration(
        commandName: "sockcat",
        abstract: "Connect, listen, relay and inspect over TCP, UDP, Unix-domain sockets, TLS and DTLS.",
        discussion: """
            EXAMPLES:
              sockcat connect --tls example.org 443
              sockcat connect --starttls smtp mail.example.org 25
              sockcat listen --echo 7000
              sockcat relay --listen 8443 --listen-tls --cert a.pem --to localhost:8080
              sockcat inspect www.example.org 443
              sockcat certificate authority
              sockcat bench requests localhost 8080 --http /

            COMPLETIONS (bash, zsh or fish):
              sockcat --generate-completion-script bash > /etc/bash_completion.d/sockcat

            EXIT CODES:
            \(ExitStatus.table)
            """,
        version: "0.1.0",
        subcommands: [
            Connect.self,
            Listen.self,
            Relay.self,
            Inspect.self,
            Bench.self,
            Certificate.self,
        ])

    /// Creates the command.
    public init() {}
}

extension Sockcat {
    /// Runs the command that the process arguments describe, and exits with its exit code.
    public static func start() async {
        do {
            await main(try ConfigurationFile.expand(Array(CommandLine.arguments.dropFirst())))
        } catch {
            let failure = Failure(error)
            Reporter(level: .normal, style: TerminalStyle(.auto, descriptor: STDERR_FILENO)).report(failure)
            Glibc.exit(failure.status.rawValue)
        }
    }
}

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
    /// Opens the descriptors 0, 1 and 2 if the process inherited them closed. Call this before any other
    /// code.
    public static func reserveStandardDescriptors() { StandardDescriptors.reserve() }

    /// Runs the command that the process arguments describe. If it fails, exits with its exit code.
    public static func start() async {
        let reporter = Reporter(level: .normal, style: TerminalStyle(.auto, descriptor: STDERR_FILENO))
        LibraryLog.install(reporter.style)
        var expansion: ConfigurationFile.Expansion?
        do {
            let expanded = try ConfigurationFile.expansion(Array(CommandLine.arguments.dropFirst()))
            expansion = expanded
            var command = try parseAsRoot(expanded.arguments)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let failure as Failure {
            reporter.report(failure)
            Glibc.exit(failure.status.rawValue)
        } catch {
            await end(with: error, expansion, reporter)
        }
    }

    /// Prints what the argument parser throws: the help or the version on standard output, or what is wrong
    /// with the arguments on standard error.
    private static func end(
        with error: any Error, _ expansion: ConfigurationFile.Expansion?, _ reporter: Reporter
    ) async {
        let code = exitCode(for: error)
        let text = fullMessage(for: error)
        if code.isSuccess {
            do {
                try await DescriptorWriter.standardOutput().write(help: text)
            } catch {
                let failure = Failure(error)
                reporter.report(failure)
                Glibc.exit(failure.status.rawValue)
            }
        } else if !text.isEmpty {
            reporter.report(usage: text, at: expansion?.place(ofOptionIn: message(for: error)))
        }
        Glibc.exit(code.rawValue)
    }
}

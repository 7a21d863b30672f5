internal import ArgumentParser
internal import Glibc

/// A subcommand. Errors are printed with advice, and become exit codes.
protocol SockcatCommand: AsyncParsableCommand {
    var output: OutputOptions { get }

    /// Runs the command.
    func perform(_ reporter: Reporter) async throws
}

extension SockcatCommand {
    func run() async throws {
        // A write to a closed pipe then fails with EPIPE instead of killing the process.
        signal(SIGPIPE, SIG_IGN)
        let reporter = Reporter(output)
        do {
            try await perform(reporter)
        } catch let code as ExitCode {
            throw code
        } catch {
            let failure = OptionNames(of: Self.self).adapted(Failure(error))
            reporter.report(failure)
            throw ExitCode(failure.status.rawValue)
        }
    }
}

/// Signals that end the process immediately, with the exit code that a shell would report.
enum Interruption {
    /// Ends the process on Ctrl-C and SIGTERM, even while threads are blocked in system calls. A signal that
    /// was ignored when the process started, for example by nohup(1), is still ignored.
    static func exitsImmediately() {
        for number in [SIGINT, SIGTERM] {
            var previous = sigaction()
            guard sigaction(number, nil, &previous) == 0, !previous.isIgnored else { continue }
            signal(number) { number in _exit(128 + number) }
        }
    }
}

extension sigaction {
    fileprivate var isIgnored: Bool {
        unsafeBitCast(__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
    }
}

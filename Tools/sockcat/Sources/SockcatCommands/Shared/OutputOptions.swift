internal import ArgumentParser
internal import Glibc

/// The options that choose how much a command prints on standard error.
struct OutputOptions: ParsableArguments {
    @Flag(name: .shortAndLong, help: "Print errors only.")
    var quiet = false

    @Flag(name: .shortAndLong, help: "Print each step, the negotiated TLS parameters and the details of errors.")
    var verbose = false

    @Option(
        help: ArgumentHelp(
            "When to use colors. With auto, output to a terminal is colored unless NO_COLOR is set.", valueName: "when"))
    var color = ColorChoice.auto

    func validate() throws {
        if quiet, verbose { throw ValidationError("--quiet and --verbose cannot be combined") }
    }
}

enum ColorChoice: String, CaseIterable, ExpressibleByArgument {
    case auto, always, never
}

/// Prints messages on standard error, so that standard output contains only data.
struct Reporter: Sendable {
    enum Level: Int, Comparable, Sendable {
        case errors, normal, verbose

        static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
    }

    let level: Level
    let style: TerminalStyle

    init(level: Level, style: TerminalStyle) {
        (self.level, self.style) = (level, style)
    }

    init(_ options: OutputOptions) {
        level = options.quiet ? .errors : options.verbose ? .verbose : .normal
        style = TerminalStyle(options.color, descriptor: STDERR_FILENO)
    }

    /// Prints a message unless `--quiet` was given.
    func note(_ text: @autoclosure () -> PrintableText) {
        if level >= .normal { StandardError.write("\(text())\n") }
    }

    /// Prints a message if `--verbose` was given.
    func detail(_ text: @autoclosure () -> PrintableText) {
        if level >= .verbose { StandardError.write("\(style.dim("* \(text())"))\n") }
    }

    /// Prints a warning in red, even with `--quiet`.
    func warn(_ text: PrintableText) {
        StandardError.write("\(style.red("warning: \(text)"))\n")
    }

    /// Prints a failure, unless the failure is that nobody reads the output.
    func report(_ failure: Failure) {
        if failure.status == .outputClosed { return }
        let hint: PrintableText = failure.advice.map { "\(style.bold("hint:")) \($0)\n" } ?? ""
        StandardError.write("\(style.red("sockcat:")) \(failure.message)\n\(hint)")
        if let details = failure.details { detail("\(details)") }
    }
}

extension Reporter {
    /// Prints a message of the argument parser: what is wrong, and then how to use the command.
    ///
    /// - Parameter place: The place of the option that is wrong, if it is from a file.
    func report(usage text: String, at place: String?) {
        let lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            .map { PrintableText(String(Substring($0))) }
        guard let first = lines.first?.text else { return }
        let message = PrintableText(first.hasPrefix("Error: ") ? String(first.dropFirst(7)) : first)
        let start: PrintableText = place.map { "\($0): " } ?? ""
        StandardError.write("\(style.red("sockcat:")) \(start)\(message)\n\(lines.dropFirst().asLines)")
    }
}

enum StandardError {
    /// Writes text with a single system call, so that lines of concurrent tasks do not mix.
    static func write(_ text: PrintableText) {
        var rest = Array(text.text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }
}

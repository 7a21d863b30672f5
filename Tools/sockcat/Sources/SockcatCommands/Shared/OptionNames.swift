internal import ArgumentParser

/// The long options of a subcommand, so that hints name only options that the user can pass.
struct OptionNames {
    private let names: Set<String>

    init(of command: any ParsableCommand.Type) {
        let help = command.helpMessage(includeHidden: true, columns: 200)
        let lines = help.utf8.split(separator: UInt8(ascii: "\n")).map { Substring($0).drop { $0 == " " } }.filter {
            $0.hasPrefix("-")
        }
        names = Set(
            lines.flatMap { Self.options(in: String($0.prefix(upTo: $0.firstRange(of: "  ")?.lowerBound ?? $0.endIndex))) })
    }

    /// Returns the failure without its advice if the advice names an option that the subcommand does not
    /// have.
    func adapted(_ failure: Failure) -> Failure {
        var failure = failure
        if let advice = failure.advice, !names.isSuperset(of: Self.options(in: advice)) { failure.advice = nil }
        return failure
    }

    static func options(in text: String) -> [String] {
        text.matches(of: #/(?:^|[^\w-])(--[a-z][a-z0-9-]*)/#).map { String($0.1) }
    }
}

extension Failure {
    /// The same failure with advice about the options of a relay's target, such as --to-cert instead of
    /// --cert.
    var ofTargetOptions: Failure {
        var failure = self
        failure.advice = advice?.replacing("--", with: "--to-")
        return failure
    }
}

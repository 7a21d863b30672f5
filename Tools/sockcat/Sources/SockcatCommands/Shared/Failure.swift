/// The failure of a command: what failed, what the user can do about it, and the exit code.
struct Failure: Error, Equatable, CustomStringConvertible {
    /// A sentence fragment without a full stop.
    var message: String
    /// A sentence fragment that says what to do next, if that is known.
    var advice: String?
    var status: ExitStatus
    /// Further facts, which are shown only with `--verbose`.
    var details: String?

    init(_ message: String, advice: String? = nil, status: ExitStatus = .failure, details: String? = nil) {
        (self.message, self.advice, self.status, self.details) = (message, advice, status, details)
    }

    var description: String { advice.map { "\(message): \($0)" } ?? message }

    /// The reader of standard output has exited. The command exits without a message.
    static let outputClosed = Failure("standard output was closed", status: .outputClosed)

    /// The same failure, with a message that starts with the subject.
    func about(_ subject: String) -> Failure {
        var failure = self
        failure.message = "\(subject): \(message)"
        return failure
    }

    static func usage(_ message: String, advice: String? = nil) -> Failure {
        Failure(message, advice: advice, status: .usage)
    }

    static func file(_ path: String, _ operation: String, errno number: Int32) -> Failure {
        Failure("cannot \(operation) \"\(path)\": \(ErrorText.of(number))", status: .fileFailed)
    }
}

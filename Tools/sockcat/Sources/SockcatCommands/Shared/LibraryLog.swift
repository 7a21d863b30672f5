internal import Logging

/// Prints the library's log, such as a warning about missing descriptors, in the form of the program's
/// messages.
struct LibraryLog: LogHandler {
    private let reporter: Reporter
    var logLevel = Logger.Level.warning
    var metadata = Logger.Metadata()

    /// Prints the messages of all loggers that are created from now on. Call it once.
    static func install(_ style: TerminalStyle) {
        let log = LibraryLog(reporter: Reporter(level: .verbose, style: style))
        LoggingSystem.bootstrap { _ in log }
    }

    private init(reporter: Reporter) {
        self.reporter = reporter
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let facts = metadata.merging(event.metadata ?? [:]) { $1 }.mapValues { LibraryMessage.translated("\($0)") }
        let details = facts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
        let message = LibraryMessage.translated("\(event.message)") + (details.isEmpty ? "" : ": \(details)")
        // The user has chosen the limit, or a server for a single client.
        if facts["limit"] != nil, logLevel > .info { return }
        switch event.level {
        case .trace, .debug, .info, .notice: reporter.detail("\(message)")
        case .warning: reporter.warn("\(message)")
        case .error, .critical: reporter.report(Failure(message))
        }
    }
}

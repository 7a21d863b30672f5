import AsyncSockets
import Foundation
import Logging
import SocketBuffers
import SocketCore

/// Records the log output of the tests that expect it.
enum LogRecorder {
    struct Line: Sendable {
        let level: Logger.Level
        let message: String
        let metadata: Logger.Metadata
    }

    private static let lines = Locked<[Line]>([])
    /// The metadata of expected lines in the library's own log.
    private static let expected = Locked<Set<[String]>>([])
    private static let isInstalled: Bool = {
        socketLog.withLock { $0 = Logger(label: "test") { _ in Handler(isOfTheLibrary: true) } }
        return true
    }()

    /// Records the lines of the library's own log that have this metadata value. All tests share that log.
    /// Other lines are printed as usual, so that unexpected warnings are visible.
    static func expect(_ key: String, _ value: String) {
        expected.withLock { _ = $0.insert([key, value]) }
        _ = isInstalled
    }

    /// Returns a logger whose lines have the metadata `test`.
    static func logger(of test: String) -> Logger {
        var logger = Logger(label: "test") { _ in Handler() }
        logger[metadataKey: "test"] = "\(test)"
        return logger
    }

    /// Returns the warnings and errors of a logger.
    static func warnings(of test: String) -> [Line] {
        lines("test", test).filter { $0.level >= .warning }
    }

    /// Returns the lines about one listener.
    static func lines(about listener: SocketEndpoint) -> [Line] {
        lines("listener", "\(listener)")
    }

    /// Returns the lines with this metadata value, except those about injected faults.
    static func lines(_ key: String, _ value: String) -> [Line] {
        lines.withLock { $0.filter { $0.metadata[key] == "\(value)" && !isAboutInjectedFault($0) } }
    }

    /// With `Scripts/checks/faults`, each listener may have to accept again.
    private static func isAboutInjectedFault(_ line: Line) -> Bool {
        injectsFaults && line.metadata["limit"] == nil
            && ["accepting failed and will be retried", "accepting paused"].contains(line.message)
    }

    private static let injectsFaults = ProcessInfo.processInfo.environment["FAULTS"] != nil

    private struct Handler: LogHandler {
        var isOfTheLibrary = false
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let metadata = metadata.merging(event.metadata ?? [:]) { $1 }
            lines.withLock { $0.append(Line(level: event.level, message: "\(event.message)", metadata: metadata)) }
            guard isOfTheLibrary, event.level >= .info else { return }
            let isExpected = expected.withLock { expected in metadata.contains { expected.contains([$0.key, "\($0.value)"]) } }
            if !isExpected { StreamLogHandler.standardError(label: "AsyncSockets").log(event: event) }
        }
    }
}

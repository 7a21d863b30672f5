import AsyncSockets
import Logging
import SocketBuffers
import SocketCore

/// Records the sockets' log output. It replaces their logger for the whole process, so the metadata
/// identifies the test that a line belongs to.
enum LogRecorder {
    struct Line: Sendable {
        let level: Logger.Level
        let message: String
        let metadata: Logger.Metadata
    }

    private static let lines = Locked<[Line]>([])
    private static let isInstalled: Bool = {
        socketLog.withLock { $0 = Logger(label: "test") { _ in Handler() } }
        return true
    }()

    static func install() {
        _ = isInstalled
    }

    /// Returns a logger whose lines have the metadata `test`.
    static func logger(of test: String) -> Logger {
        var logger = Logger(label: "test") { _ in Handler() }
        logger[metadataKey: "test"] = "\(test)"
        return logger
    }

    /// Returns the lines about one listener.
    static func lines(about listener: SocketEndpoint) -> [Line] {
        lines("listener", "\(listener)")
    }

    /// Returns the lines with this metadata value.
    static func lines(_ key: String, _ value: String) -> [Line] {
        lines.withLock { $0.filter { $0.metadata[key] == "\(value)" } }
    }

    private struct Handler: LogHandler {
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let metadata = metadata.merging(event.metadata ?? [:]) { $1 }
            lines.withLock { $0.append(Line(level: event.level, message: "\(event.message)", metadata: metadata)) }
        }
    }
}

internal import Logging
internal import SocketBuffers
internal import SocketCore

/// Logs the failed connections of a listener or of a reconnecting client. At most one failure of each kind is
/// logged per second, so that peers cannot flood the log. Further failures are counted and logged at `debug`.
final class FailureLog: Sendable {
    /// The stage in which a connection failed.
    enum Stage: String {
        case connecting
        case handshake
        case body

        /// Failed handshakes are routine on public networks. An error thrown by the body indicates a problem
        /// in the program.
        var level: Logger.Level { self == .handshake ? .notice : .warning }

        var message: Logger.Message {
            self == .connecting ? "connecting failed and will be retried" : "a connection's task failed"
        }
    }

    private struct Line {
        var next: ContinuousClock.Instant
        var omitted = 0
    }

    private let lines = Locked<[String: Line]>([:])

    /// The maximum number of distinct kinds of errors: a peer may choose the kind, and each kind uses memory.
    private static let maximumKinds = 64

    /// - Parameter isHandled: Whether the program handles the errors itself. If so, failures are logged only
    ///   at `debug`.
    func note(
        _ error: any Error, of peer: SocketEndpoint?, in stage: Stage, isHandled: Bool, _ logger: Logger,
        at now: ContinuousClock.Instant = .now
    ) {
        var metadata: Logger.Metadata = ["stage": "\(stage.rawValue)", "error": "\(error)"]
        if let peer { metadata["peer"] = "\(peer)" }
        var level = Logger.Level.debug
        if !isHandled, let omitted = takeLine(of: "\(stage) \(Self.kind(of: error))", at: now) {
            level = stage.level
            if omitted > 0 { metadata["omitted"] = "\(omitted)" }
        }
        logger.log(level: level, stage.message, metadata: metadata)
    }

    /// Returns how many errors of this kind were omitted since it was last logged, or `nil` if less than a
    /// second has passed since then.
    private func takeLine(of kind: String, at now: ContinuousClock.Instant) -> Int? {
        lines.withLock { lines in
            let key = lines[kind] != nil || lines.count < Self.maximumKinds ? kind : "others"
            guard now >= lines[key, default: Line(next: now)].next else {
                lines[key]?.omitted += 1
                return nil
            }
            defer { lines[key] = Line(next: now + .seconds(1)) }
            return lines[key]?.omitted ?? 0
        }
    }

    private static func kind(of error: any Error) -> String {
        guard let error = error as? AsyncSocketError else { return "\(type(of: error))" }
        return error.tls.map { "\(error.code) \($0.code)" } ?? "\(error.code)"
    }
}

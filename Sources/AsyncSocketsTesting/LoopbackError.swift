internal import Glibc

/// An error from a `ScriptedPeer`, a `TamperingRelay` or a `TestSignal`.
public struct LoopbackError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure.
    public var code: Code
    /// A one-sentence description of the failure.
    public var message: String
    /// The operation that failed: a step of the script, or a system call.
    public var operation: String
    /// The number of the script step that failed, starting at 0.
    public var step: Int?
    /// The system's error number, if a system call failed.
    public var errorNumber: Int32?

    init(_ code: Code, _ message: String, operation: String, errorNumber: Int32? = nil) {
        self.code = code
        self.message = message
        self.operation = operation
        self.errorNumber = errorNumber
    }

    /// The step, the message, the code and the operation.
    public var description: String {
        let place = step.map { "step \($0): " } ?? ""
        return "\(place)\(message) [\(code); \(operation)]"
    }

    /// The kind of failure. New kinds may be added, so a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        /// The other side or the test did not act in time.
        public static let timedOut = Code(description: "timedOut")
        /// The received bytes differ from the expected bytes.
        public static let unexpectedBytes = Code(description: "unexpectedBytes")
        /// The other side closed the connection (FIN) while the script expected bytes.
        public static let ended = Code(description: "ended")
        /// The other side reset the connection.
        public static let reset = Code(description: "reset")
        /// TLS failed.
        public static let tlsFailed = Code(description: "tlsFailed")
        /// `stop()` was called.
        public static let stopped = Code(description: "stopped")
        /// A system call failed: see `errorNumber`.
        public static let systemFailed = Code(description: "systemFailed")
    }
}

extension LoopbackError {
    /// Creates an error for the system call that just failed.
    static func system(_ operation: String, _ number: Int32 = errno) -> LoopbackError {
        let code: Code = number == ECONNRESET || number == EPIPE ? .reset : .systemFailed
        let text = String(cString: strerror(number))
        let reason = text.prefix(1).lowercased() + text.dropFirst()
        return LoopbackError(code, reason, operation: operation, errorNumber: number)
    }
}

internal import Glibc

/// Why a `ScriptedPeer`, a `TamperingRelay` or a `TestSignal` failed.
public struct LoopbackError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of the failure.
    public var code: Code
    /// One sentence that says what failed.
    public var message: String
    /// The operation that failed: a step of the script, or a system call.
    public var operation: String
    /// The number of the script's step, from 0.
    public var step: Int?
    /// The system's error number, if a system call failed.
    public var errorNumber: Int32?

    init(_ code: Code, _ message: String, operation: String, errorNumber: Int32? = nil) {
        self.code = code
        self.message = message
        self.operation = operation
        self.errorNumber = errorNumber
    }

    /// The step, the message and the operation.
    public var description: String {
        let place = step.map { "Step \($0): " } ?? ""
        return "\(place)\(message) [\(code); \(operation)]"
    }

    /// The kind of a failure. New kinds may be added: a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        /// The other side or the test did not act in time.
        public static let timedOut = Code(description: "timedOut")
        /// The bytes that came are not those that the script expects.
        public static let unexpectedBytes = Code(description: "unexpectedBytes")
        /// The other side ended the connection (FIN) where the script expects bytes.
        public static let ended = Code(description: "ended")
        /// The other side reset the connection.
        public static let reset = Code(description: "reset")
        /// TLS failed.
        public static let tlsFailed = Code(description: "tlsFailed")
        /// `stop()` was called.
        public static let stopped = Code(description: "stopped")
        /// The system refused: see `errorNumber`.
        public static let systemFailed = Code(description: "systemFailed")
    }
}

extension LoopbackError {
    /// The last system call failed.
    static func system(_ operation: String, _ number: Int32 = errno) -> LoopbackError {
        let code: Code = number == ECONNRESET || number == EPIPE ? .reset : .systemFailed
        return LoopbackError(code, String(cString: strerror(number)) + ".", operation: operation, errorNumber: number)
    }
}

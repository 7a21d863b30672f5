public import FoundationEssentials
internal import Glibc

/// Why an operation failed or a connection ended: what happened, who is to blame, and during what.
public struct AsyncSocketError: Error, Sendable, Hashable {
    /// The kind of error. New codes may be added: keep a `default` when you switch.
    public var code: Code {
        get { contents.code }
        set { change { $0.code = newValue } }
    }

    /// The party that has to change something: the caller, the peer, the holder of a certificate, or the
    /// system.
    public var blame: Blame {
        get { contents.blame }
        set { change { $0.blame = newValue } }
    }

    /// The operation under way, for example `connect` or `startTLS`.
    public var operation: String {
        get { contents.operation }
        set { change { $0.operation = newValue } }
    }

    /// One sentence that says what was wrong.
    public var message: String {
        get { contents.message }
        set { change { $0.message = newValue } }
    }

    /// The `errno` of the system call that failed, where one did.
    public var errno: Int32? {
        get { contents.errno }
        set { change { $0.errno = newValue } }
    }

    /// The error of the TLS engine: the alert of the peer, the certificate that was refused, OpenSSL's error
    /// stack.
    public var tls: TLSError? {
        get { contents.tls }
        set { change { $0.tls = newValue } }
    }

    /// True when the connection ended in good order: the peer closed it with a FIN or, with TLS, a
    /// close_notify. An end that you asked for has no error.
    public var isOrderlyEnd: Bool { code == .closedByPeer }
    /// The TLS engine has found it. To copy its error, to look at it, would count references.
    var isOfTLS: Bool { if case .some = box.contents.tls { true } else { false } }

    /// An error that you make yourself, for tests of code that handles errors.
    ///
    /// - Parameters:
    ///   - code: The kind of error.
    ///   - blame: The party that has to change something.
    ///   - operation: The operation under way.
    ///   - message: One sentence that says what was wrong.
    ///   - errno: The `errno` of the system call that failed, where one did.
    ///   - tls: The error of the TLS engine, where there is one.
    public init(
        _ code: Code, blame: Blame, operation: String, message: String, errno: Int32? = nil, tls: TLSError? = nil
    ) {
        box = Box(Contents(code: code, blame: blame, operation: operation, message: message, errno: errno, tls: tls))
    }

    // Behind one reference: a connection asks after each message whether it has an error, and moves events
    // that could hold one.
    private var box: Box
    private var contents: Contents { box.contents }

    private mutating func change(_ body: (inout Contents) -> Void) {
        var contents = contents
        body(&contents)
        box = Box(contents)
    }

    private struct Contents: Hashable, Sendable {
        var code: Code
        var blame: Blame
        var operation: String
        var message: String
        var errno: Int32?
        var tls: TLSError?
    }

    private final class Box: Sendable {
        let contents: Contents

        init(_ contents: Contents) {
            self.contents = contents
        }
    }

    /// Two errors are equal when all their parts are.
    public static func == (left: AsyncSocketError, right: AsyncSocketError) -> Bool {
        left.contents == right.contents
    }

    /// Hashes all parts.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(contents)
    }

    /// The kind of error.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the code, for logs.
        public let description: String

        /// The state of the socket does not allow the call: already connected or listening, no connection to
        /// upgrade, a second `startTLS`.
        public static let badConfiguration = Code(description: "badConfiguration")
        /// An argument is invalid: a negative length, an empty delimiter, port 0.
        public static let badParameter = Code(description: "badParameter")
        /// The host name has no address (blame: caller), or the resolver failed (blame: system).
        public static let hostNotFound = Code(description: "hostNotFound")
        /// The host has addresses, but none that may be used: their family is disabled, or the interface has
        /// no address of it.
        public static let noUsableAddress = Code(description: "noUsableAddress")
        /// No address of the host accepted the connection.
        public static let connectFailed = Code(description: "connectFailed")
        /// The proxy refused to make the connection, or could not; the message has its answer.
        public static let proxyRefused = Code(description: "proxyRefused")
        /// The proxy requires a user name and a password: you gave none, or it did not accept them.
        public static let proxyAuthenticationRequired = Code(description: "proxyAuthenticationRequired")
        /// The proxy broke its protocol or ended the connection before the tunnel was established. For a
        /// listener: the connection did not begin with a valid PROXY header.
        public static let proxyFailed = Code(description: "proxyFailed")
        /// The connection was not established in time.
        public static let connectTimeout = Code(description: "connectTimeout")
        /// A read was not complete in time.
        public static let readTimeout = Code(description: "readTimeout")
        /// A write was not complete in time.
        public static let writeTimeout = Code(description: "writeTimeout")
        /// No byte has come or gone for the `idleTimeout` of a sequence or of a listener's `run`.
        public static let idleTimeout = Code(description: "idleTimeout")
        /// The deadline of `withDeadline(_:_:)` passed before the operation was complete.
        public static let deadlineExceeded = Code(description: "deadlineExceeded")
        /// The TLS handshake was not complete in time.
        public static let handshakeTimeout = Code(description: "handshakeTimeout")
        /// The trust callback gave no verdict in time.
        public static let trustTimeout = Code(description: "trustTimeout")
        /// `maxLength` bytes came without the delimiter, or more came before the end of the stream.
        public static let readMaxedOut = Code(description: "readMaxedOut")
        /// The bytes of a frame are not what its format allows.
        public static let malformedFrame = Code(description: "malformedFrame")
        /// More bytes would wait to be written than `maximumPendingWriteBytes` allows, or than an `Int`
        /// counts.
        public static let writeQueueFull = Code(description: "writeQueueFull")
        /// This side closed the connection, with `close()`, `disconnect()` or the end of `withConnection`:
        /// what was not complete ends with this error, and so does what comes later.
        public static let closed = Code(description: "closed")
        /// The peer closed the connection in good order: a FIN or, with TLS, a close_notify.
        public static let closedByPeer = Code(description: "closedByPeer")
        /// The connection was secure and ended with a FIN but no close_notify: an attacker may have cut off
        /// the last bytes.
        public static let truncated = Code(description: "truncated")
        /// The peer, or the network, reset the connection.
        public static let connectionReset = Code(description: "connectionReset")
        /// The peer has gone, or the network to it, without a word: the kernel got no answer to data or to
        /// keep-alive probes for too long (tcp(7), `TCP_KEEPIDLE` and `TCP_USER_TIMEOUT`). `errno` is
        /// `ETIMEDOUT` or, if a router said so, `EHOSTUNREACH` or `ENETUNREACH`.
        public static let connectionTimedOut = Code(description: "connectionTimedOut")
        /// The handshake would wait more than 30 seconds for its private key, because other handshakes use
        /// the same key and it is slow, like a key in a token. Or a `DatagramListener` reached a limit, and a
        /// new client replaced this handshake (`DatagramListener.maximumHandshakes`).
        public static let tooManyHandshakes = Code(description: "tooManyHandshakes")
        /// Plaintext was in the buffer when the handshake was about to begin: a STARTTLS injection, or a
        /// greeting or reply that you did not read before `startTLS`.
        public static let bytesBufferedAtUpgrade = Code(description: "bytesBufferedAtUpgrade")
        /// TLS failed; `tls` says how.
        public static let tls = Code(description: "tls")
        /// A system call failed; `errno` says why.
        public static let system = Code(description: "system")
    }
}

extension AsyncSocketError: CustomStringConvertible, LocalizedError {
    /// The operation and the message, with the code and who is to blame; for TLS, what the engine found.
    public var description: String {
        if let tls { return "\(operation): \(tls)" }
        return "\(operation): \(message) (\(code), blame: \(blame))"
    }

    /// The same as `description`, for `localizedDescription`.
    public var errorDescription: String? { description }
}

// MARK: - Making them

extension AsyncSocketError {
    static func badConfiguration(_ operation: String, _ message: String) -> AsyncSocketError {
        AsyncSocketError(.badConfiguration, blame: .caller, operation: operation, message: message)
    }

    static func badParameter(_ operation: String, _ message: String) -> AsyncSocketError {
        AsyncSocketError(.badParameter, blame: .caller, operation: operation, message: message)
    }

    static func timeout(_ code: Code, _ operation: String, blame: Blame = .peer, seconds: Double) -> AsyncSocketError {
        AsyncSocketError(code, blame: blame, operation: operation, message: "it did not complete within \(seconds) seconds")
    }

    static func idle(for time: Duration) -> AsyncSocketError {
        AsyncSocketError(
            .idleTimeout, blame: .peer, operation: "read", message: "no byte has come or gone for \(time)")
    }

    static func stuckBeforeTLS(seconds: Double) -> AsyncSocketError {
        AsyncSocketError(
            .handshakeTimeout, blame: .peer, operation: "startTLS",
            message: "the writes before startTLS were not sent: the peer accepted no byte for \(seconds) seconds")
    }

    static let closed = AsyncSocketError(
        .closed, blame: .caller, operation: "close", message: "this side closed the connection")

    static let closedByPeer = AsyncSocketError(
        .closedByPeer, blame: .peer, operation: "read", message: "the peer closed the connection")

    init(_ error: SystemError, operation: String) {
        let code: Code =
            switch error.errno {
            case ECONNRESET, EPIPE, ECONNABORTED: .connectionReset
            case ETIMEDOUT, EHOSTUNREACH, ENETUNREACH: ["read", "write"].contains(operation) ? .connectionTimedOut : .system
            default: .system
            }
        self.init(
            code, blame: code == .system ? .system : .peer, operation: operation, message: error.description,
            errno: error.errno)
    }

    init(_ error: TLSError, operation: String) {
        let code: Code =
            switch error.code {
            case .truncated: .truncated
            case .trustTimeout: .trustTimeout
            default: .tls
            }
        self.init(code, blame: error.blame, operation: operation, message: error.message, tls: error)
    }
}

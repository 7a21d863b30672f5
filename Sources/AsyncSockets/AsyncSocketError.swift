public import FoundationEssentials
internal import Glibc
internal import SocketBuffers
public import StartTLSProtocols

/// The reason why an operation or a connection failed: the cause, the responsible party, and the operation.
public struct AsyncSocketError: Error, Sendable, Hashable {
    /// The kind of error. New codes may be added: keep a `default` in a `switch`.
    public var code: Code {
        get { contents.code }
        set { change { $0.code = newValue } }
    }

    /// The party that must change something: the caller, the peer, the holder of a certificate, or the
    /// system.
    public var fault: TLSError.Fault {
        get { contents.fault }
        set { change { $0.fault = newValue } }
    }

    /// The operation that failed, for example `.connect` or `.startTLS`.
    public var operation: Operation {
        get { contents.operation }
        set { change { $0.operation = newValue } }
    }

    /// A one-sentence description of the problem.
    public var message: String {
        get { contents.message }
        set { change { $0.message = newValue } }
    }

    /// The `errno` of the failed system call, if any.
    public var errno: Int32? {
        get { contents.errno }
        set { change { $0.errno = newValue } }
    }

    /// The error of the TLS engine, if any: the peer's alert, the rejected certificate, OpenSSL's error
    /// stack.
    public var tls: TLSError? {
        get { contents.tls }
        set { change { $0.tls = newValue } }
    }

    /// The error of the STARTTLS dialogue, if any: the peer's refusal, or the number of injected bytes.
    public var startTLS: StartTLSError? {
        get { contents.startTLS }
        set { change { $0.startTLS = newValue } }
    }

    /// Whether the peer closed the connection in an orderly way: with a FIN or, under TLS, a close_notify. If
    /// you closed the connection yourself, there is no error.
    public var isOrderlyEnd: Bool { code == .closedByPeer }
    /// Whether the error is from the TLS engine. Unlike a test of `tls`, this does not copy the engine's
    /// error and needs no reference counting.
    var isOfTLS: Bool { if case .some = box.contents.tls { true } else { false } }

    /// Creates an error, for tests of code that handles errors.
    ///
    /// - Parameters:
    ///   - code: The kind of error.
    ///   - fault: The party that must change something.
    ///   - operation: The operation that failed.
    ///   - message: A one-sentence description of the problem.
    ///   - errno: The `errno` of the failed system call, if any.
    ///   - tls: The error of the TLS engine, if any.
    ///   - startTLS: The error of the STARTTLS dialogue, if any.
    public init(
        _ code: Code, fault: TLSError.Fault, operation: Operation, message: String, errno: Int32? = nil, tls: TLSError? = nil,
        startTLS: StartTLSError? = nil
    ) {
        box = Box(
            Contents(
                code: code, fault: fault, operation: operation, message: message, errno: errno, tls: tls, startTLS: startTLS))
    }

    // Stored as a single reference, because a connection checks for an error after each message, and
    // moves events that can contain an error.
    private var box: Box
    private var contents: Contents { box.contents }

    private mutating func change(_ body: (inout Contents) -> Void) {
        var contents = contents
        body(&contents)
        box = Box(contents)
    }

    private struct Contents: Hashable, Sendable {
        var code: Code
        var fault: TLSError.Fault
        var operation: Operation
        var message: String
        var errno: Int32?
        var tls: TLSError?
        var startTLS: StartTLSError?
    }

    private final class Box: Sendable {
        let contents: Contents

        init(_ contents: Contents) {
            self.contents = contents
        }
    }

    /// Returns whether two errors are equal in all parts.
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

        /// The state of the socket does not allow the call: it is already connected or listening, has no
        /// connection to upgrade, or `startTLS` was already called.
        public static let badConfiguration = Code(description: "badConfiguration")
        /// An argument is invalid: a negative length, an empty delimiter, port 0.
        public static let badParameter = Code(description: "badParameter")
        /// The host name has no address (fault: caller), or the resolver failed (fault: system).
        public static let hostNotFound = Code(description: "hostNotFound")
        /// No address of the host is usable: its family is disabled, or the interface has no address of that
        /// family.
        public static let noUsableAddress = Code(description: "noUsableAddress")
        /// No address of the host accepted the connection.
        public static let connectFailed = Code(description: "connectFailed")
        /// The proxy refused or was unable to connect to the host. The message contains the proxy's reply.
        public static let proxyRefused = Code(description: "proxyRefused")
        /// The proxy requires a user name and a password: you provided no credentials, or the proxy rejected
        /// them.
        public static let proxyAuthenticationRequired = Code(description: "proxyAuthenticationRequired")
        /// The proxy violated its protocol or closed the connection before the tunnel was established. For a
        /// listener: the connection did not start with a valid PROXY header.
        public static let proxyFailed = Code(description: "proxyFailed")
        /// The connection was not established in time.
        public static let connectTimeout = Code(description: "connectTimeout")
        /// A read was not complete in time.
        public static let readTimeout = Code(description: "readTimeout")
        /// A write was not complete in time.
        public static let writeTimeout = Code(description: "writeTimeout")
        /// No byte was received or sent for the `idleTimeout` of a sequence or of a listener's `run`.
        public static let idleTimeout = Code(description: "idleTimeout")
        /// The deadline of `withDeadline(_:_:)` expired before the operation was complete.
        public static let deadlineExceeded = Code(description: "deadlineExceeded")
        /// The TLS handshake, or the dialogue before it, was not complete in time.
        public static let handshakeTimeout = Code(description: "handshakeTimeout")
        /// The trust callback did not decide in time.
        public static let trustTimeout = Code(description: "trustTimeout")
        /// `maxLength` bytes arrived without the delimiter, or more than `maxLength` bytes before the end of
        /// the stream.
        public static let readMaxedOut = Code(description: "readMaxedOut")
        /// The bytes of a frame violate its format.
        public static let malformedFrame = Code(description: "malformedFrame")
        /// The queued bytes would exceed `maximumPendingWriteBytes`, or the range of an `Int`.
        public static let writeQueueFull = Code(description: "writeQueueFull")
        /// This side closed the connection with `close(timeout:)`, `disconnect()` or at the end of
        /// `withConnection`. Incomplete operations and later operations fail with this error.
        public static let closed = Code(description: "closed")
        /// The peer closed the connection in an orderly way: with a FIN or, under TLS, a close_notify.
        public static let closedByPeer = Code(description: "closedByPeer")
        /// A secure connection was closed by a FIN without a close_notify: an attacker may have cut off the
        /// last bytes.
        public static let truncated = Code(description: "truncated")
        /// The peer or the network reset the connection.
        public static let connectionReset = Code(description: "connectionReset")
        /// The peer, or the network path to it, has vanished silently: the kernel received no response to
        /// data or to keep-alive probes for too long (tcp(7), `TCP_KEEPIDLE` and `TCP_USER_TIMEOUT`). `errno`
        /// is `ETIMEDOUT` or, if a router reported the failure, `EHOSTUNREACH` or `ENETUNREACH`.
        public static let connectionTimedOut = Code(description: "connectionTimedOut")
        /// A listener reached a limit and closed this connection, or the socket of this peer
        /// (`SocketListener.maximumConnections` and `maximumConnectionsPerSource`,
        /// `DatagramListener.maximumPeers`).
        public static let tooManyConnections = Code(description: "tooManyConnections")
        /// The handshake would be delayed by more than 30 seconds, because its private key is slow (a key in
        /// a hardware token, for example) and other handshakes use the same key. Or a listener
        /// reached `maximumHandshakes`, and a new client replaced this handshake.
        public static let tooManyHandshakes = Code(description: "tooManyHandshakes")
        /// Plaintext was already buffered when the handshake was about to start: a STARTTLS injection, or a
        /// greeting or reply that you did not read before `startTLS`.
        public static let earlyPlaintext = Code(description: "earlyPlaintext")
        /// The STARTTLS dialogue failed; see `startTLS` for the cause.
        public static let startTLSFailed = Code(description: "startTLSFailed")
        /// TLS failed; see `tls` for the cause.
        public static let tls = Code(description: "tls")
        /// A system call failed; see `errno` for the cause.
        public static let system = Code(description: "system")
    }
}

extension AsyncSocketError: CustomStringConvertible, LocalizedError {
    /// The operation, the message, the code and the fault, or for TLS the operation and the engine's error.
    public var description: String {
        if let tls { return "\(operation): \(tls)" }
        return "\(operation): \(message) (\(code), fault: \(fault))"
    }

    /// The same text as `description`, for `localizedDescription`.
    public var errorDescription: String? { description }
}

// MARK: - Creating errors

extension AsyncSocketError {
    static func badConfiguration(_ operation: Operation, _ message: String) -> AsyncSocketError {
        AsyncSocketError(.badConfiguration, fault: .caller, operation: operation, message: message)
    }

    static func badParameter(_ operation: Operation, _ message: String) -> AsyncSocketError {
        AsyncSocketError(.badParameter, fault: .caller, operation: operation, message: message)
    }

    /// Creates the error for an expired timeout. A timeout of zero is the caller's fault.
    static func timeout(
        _ code: Code, _ operation: Operation, fault: TLSError.Fault = .peer, seconds: Double
    ) -> AsyncSocketError {
        AsyncSocketError(
            code, fault: seconds > 0 ? fault : .caller, operation: operation,
            message: "\(operation.missingEvent) within \(text(ofSeconds: seconds))")
    }

    /// Returns a duration for a message, such as `60 seconds` or `0.05 seconds`.
    static func text(ofSeconds seconds: Double) -> String {
        seconds == 1 ? "1 second" : "\(Int(exactly: seconds).map(String.init) ?? String(seconds)) seconds"
    }

    static func idle(for time: Duration) -> AsyncSocketError {
        AsyncSocketError(
            .idleTimeout, fault: .peer, operation: .read,
            message: "no data was received or sent for \(text(ofSeconds: time.inSeconds)) (idleTimeout)")
    }

    static func idleDatagrams(for time: Duration) -> AsyncSocketError {
        AsyncSocketError(
            .idleTimeout, fault: .peer, operation: .receive,
            message: "no datagram was received or sent for \(text(ofSeconds: time.inSeconds)) (idleTimeout)")
    }

    static func stuckBeforeTLS(seconds: Double) -> AsyncSocketError {
        AsyncSocketError(
            .handshakeTimeout, fault: .peer, operation: .startTLS,
            message: "the writes queued before startTLS were not sent: the peer accepted no data for \(text(ofSeconds: seconds))")
    }

    static let closed = AsyncSocketError(
        .closed, fault: .caller, operation: .close, message: "this side closed the connection")

    static let closedByPeer = AsyncSocketError(
        .closedByPeer, fault: .peer, operation: .read, message: "the peer closed the connection")

    init(_ error: SystemError, operation: Operation) {
        let code: Code =
            switch error.errno {
            case ECONNRESET, EPIPE, ECONNABORTED: .connectionReset
            case ETIMEDOUT, EHOSTUNREACH, ENETUNREACH: operation == .read || operation == .write ? .connectionTimedOut : .system
            default: .system
            }
        self.init(
            code, fault: code == .system ? .system : .peer, operation: operation,
            message: code == .system ? error.description : error.descriptionWithoutCall, errno: error.errno)
    }

    init(_ error: TLSError, operation: Operation) {
        let code: Code =
            switch error.code {
            case .truncated: .truncated
            case .trustTimeout: .trustTimeout
            default: .tls
            }
        self.init(code, fault: error.fault, operation: operation, message: error.message, tls: error)
    }
}

public import SocketCore
public import SocketTLS

/// Observes connections, for example to count and time them for metrics.
///
/// Set it as `AsyncSocket.observer`. One observer may serve any number of sockets. Every method has an empty
/// default implementation.
///
/// - Every `connectionDidBegin(_:)` is followed by exactly one `connectionDidEnd(_:withError:totals:)`, with
///   any handshake reported in between. A `connect` that does not lead to a connection is reported by
///   `connectDidFail(_:)` instead. The start of an accepted connection is reported after
///   `socket(_:didAcceptNewSocket:)`. If you disconnect the socket in that callback, neither start nor end is
///   reported.
/// - Calls for one connection are serialized. Calls for different connections may be concurrent.
/// - The methods are called on whichever thread is handling the connection: usually an event loop, otherwise
///   the socket queue or the thread of a call you make, such as `disconnect()`. They must return quickly and
///   never block, because other connections are waiting. Never call a socket while holding a lock that the
///   observer also acquires.
/// - Observer calls do not wait for the delegate. If the delegate has a queue, its callback for the same
///   event is delivered later.
public protocol SocketObserver: Sendable {
    /// Called when a connection is established: connected (including through a proxy), accepted, or adopted.
    func connectionDidBegin(_ connection: ObservedConnection)

    /// Called when a connection has closed. This is the last call for the connection.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - error: The error that `socketDidDisconnect(_:withError:)` receives, or `nil` if this side closed
    ///     the connection.
    ///   - totals: The number of bytes transferred and the duration of the connection.
    func connectionDidEnd(_ connection: ObservedConnection, withError error: AsyncSocketError?, totals: ConnectionTotals)

    /// Called when a `connect` has failed or was cancelled before a connection was established.
    ///
    /// - Parameter error: The reason, or `nil` if this side cancelled it.
    func connectDidFail(_ error: AsyncSocketError?)

    /// Called when a TLS handshake is complete and the peer is trusted.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - role: This side's role in the handshake.
    ///   - session: The result of the handshake: the version, the cipher suite, and whether a session was
    ///     resumed.
    ///   - times: The duration of the handshake, and the part spent deciding whether to trust the peer's
    ///     certificate.
    func connection(
        _ connection: ObservedConnection, didSecureAs role: TLSRole, session: TLSSession, times: HandshakeTimes)

    /// Called when a TLS handshake has failed or the connection has closed during the handshake.
    /// `connectionDidEnd` follows.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - role: This side's role in the handshake.
    ///   - error: The reason, or `nil` if this side closed the connection.
    ///   - times: The duration until the failure. Zero if the handshake was rejected before it started
    ///     because of earlier plaintext.
    func connection(
        _ connection: ObservedConnection, didFailToSecureAs role: TLSRole, error: AsyncSocketError?,
        times: HandshakeTimes)

    /// Called on an event loop when a listener pauses accepting. Connections then wait in the kernel's
    /// backlog.
    func acceptingDidPause(_ pause: AcceptPause)

    /// Called when an accepted connection was closed because it could not be delivered or was not kept.
    ///
    /// With the reason `.notKept`, the start and end of the connection may also be reported. Called on the
    /// delegate queue of the listener, or on an event loop if the listener has no delegate queue or the
    /// connection was refused.
    ///
    /// - Parameters:
    ///   - peer: The peer's address.
    ///   - loss: The reason.
    func didLoseAcceptedConnection(from peer: SocketEndpoint, _ loss: AcceptLoss)
}

extension SocketObserver {
    /// Does nothing.
    public func connectionDidBegin(_ connection: ObservedConnection) {}
    /// Does nothing.
    public func connectionDidEnd(
        _ connection: ObservedConnection, withError error: AsyncSocketError?, totals: ConnectionTotals
    ) {}
    /// Does nothing.
    public func connectDidFail(_ error: AsyncSocketError?) {}
    /// Does nothing.
    public func connection(
        _ connection: ObservedConnection, didSecureAs role: TLSRole, session: TLSSession, times: HandshakeTimes
    ) {}
    /// Does nothing.
    public func connection(
        _ connection: ObservedConnection, didFailToSecureAs role: TLSRole, error: AsyncSocketError?,
        times: HandshakeTimes
    ) {}
    /// Does nothing.
    public func acceptingDidPause(_ pause: AcceptPause) {}
    /// Does nothing.
    public func didLoseAcceptedConnection(from peer: SocketEndpoint, _ loss: AcceptLoss) {}
}

/// How a connection was created.
@nonexhaustive
public enum ConnectionRole: String, Sendable, Hashable, CaseIterable {
    /// Created by `connect`.
    case client
    /// Accepted by a listener.
    case server
    /// Created by other code and adopted by a socket.
    case adopted
}

/// A connection that is reported to an observer.
public struct ObservedConnection: Sendable, Hashable {
    /// The number of the connection within this process. The log uses the same number.
    public let number: UInt64
    /// How the connection was created.
    public let role: ConnectionRole
    /// The address of the peer or of the proxy. `nil` if the peer disconnected before its address was known.
    public let peer: SocketEndpoint?

    /// Creates a value without a real connection, for tests of observers.
    public init(number: UInt64, role: ConnectionRole, peer: SocketEndpoint? = nil) {
        self.number = number
        self.role = role
        self.peer = peer
    }
}

/// The duration of a TLS handshake.
public struct HandshakeTimes: Sendable, Hashable {
    /// The duration of the whole handshake.
    public let total: Duration
    /// The part of `total` that a delegate or task took to decide whether to trust the peer's certificate.
    /// Zero if OpenSSL made the decision.
    public let trust: Duration

    /// Creates arbitrary times, for tests of observers.
    public init(total: Duration, trust: Duration = .zero) {
        self.total = total
        self.trust = trust
    }
}

/// The number of bytes that a connection transferred, and its duration.
public struct ConnectionTotals: Sendable, Hashable {
    /// The number of bytes received, whether your code read them or not. With TLS, the number of decrypted
    /// bytes.
    public let bytesReceived: Int
    /// The number of bytes you wrote that the kernel has accepted or, with TLS, that were encrypted.
    public let bytesSent: Int
    /// The duration of the connection.
    public let duration: Duration

    /// Creates arbitrary totals, for tests of observers.
    public init(bytesReceived: Int, bytesSent: Int, duration: Duration) {
        self.bytesReceived = bytesReceived
        self.bytesSent = bytesSent
        self.duration = duration
    }
}

/// A pause during which a listener does not accept connections.
public struct AcceptPause: Sendable, Hashable {
    /// The reason why a listener pauses.
    @nonexhaustive
    public enum Reason: Sendable, Hashable {
        /// The number of open connections has reached `maximumConnections`.
        case connectionLimit
        /// The process or the system has run out of file descriptors or memory. The error contains the
        /// `errno`.
        case shortage(AsyncSocketError)
        /// Accepting a connection has failed, for example because of a security module. The error contains
        /// the `errno`. After twelve consecutive failures, the listener closes with this error.
        case refused(AsyncSocketError)
    }

    /// The reason for the pause.
    public let reason: Reason
    /// The time until the listener tries again. `nil` if it resumes when a connection closes or the limit
    /// changes.
    public let retryDelay: Duration?
    /// The listener's address, or the first of several addresses.
    public let listener: SocketEndpoint?

    /// Creates an arbitrary pause, for tests of observers.
    public init(reason: Reason, retryDelay: Duration?, listener: SocketEndpoint? = nil) {
        self.reason = reason
        self.retryDelay = retryDelay
        self.listener = listener
    }
}

/// The reason why an accepted connection was lost.
@nonexhaustive
public enum AcceptLoss: Sendable, Hashable {
    /// The listener's delegate was released. A socket holds its delegate weakly.
    case noDelegate
    /// The delegate did not keep the socket it received in `socket(_:didAcceptNewSocket:)`.
    case notKept
    /// The socket could not be created, because the system is out of resources or the kernel rejected an
    /// option; or the connection was refused, because its source has as many as are allowed
    /// (`.tooManyConnections`).
    case failed(AsyncSocketError)
}

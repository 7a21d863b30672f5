public import SocketCore
public import SocketTLS

/// Learns what happens to connections, to count and to time it: for metrics.
///
/// Set it as `AsyncSocket.observer`. It may serve any number of sockets. Every method has an empty default.
///
/// - Every connection that begins ends exactly once, and its handshake comes between. A `connect` that does
///   not become a connection is `connectDidFail(_:)` instead. An accepted connection begins after
///   `socket(_:didAcceptNewSocket:)`: one that you disconnect there neither begins nor ends.
/// - The calls about one connection come one after the other, those about several at a time.
/// - They come on the thread that has the connection in hand: mostly an event loop, else the socket queue or
///   the thread of a call of yours, such as `disconnect()`. Be quick and never block: other connections wait.
///   Hold no lock while you call a socket that the observer takes too.
/// - They do not wait for the delegate: on a delegate queue the callback about the same thing comes later.
public protocol SocketObserver: Sendable {
    /// A connection is established: connected, through the proxy if there is one, accepted, or adopted.
    func connectionDidBegin(_ connection: ObservedConnection)

    /// A connection has ended: the last call about it.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - error: What `socketDidDisconnect(_:withError:)` gets; nil: this side closed the connection.
    ///   - totals: The bytes that the connection carried, and how long it lasted.
    func connectionDidEnd(_ connection: ObservedConnection, withError error: AsyncSocketError?, totals: ConnectionTotals)

    /// A `connect` has ended without a connection.
    ///
    /// - Parameter error: Why; nil: this side gave it up.
    func connectDidFail(_ error: AsyncSocketError?)

    /// A TLS handshake is complete, and the peer is trusted.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - role: This side's role in the handshake.
    ///   - session: The result of the handshake: the version, the cipher suite, and whether it was resumed.
    ///   - times: How long it took, and how much of that was the decision about the peer's certificate.
    func connection(
        _ connection: ObservedConnection, didSecureAs role: TLSRole, session: TLSSession, times: HandshakeTimes)

    /// A TLS handshake has failed, or the connection has ended during it. `connectionDidEnd` follows.
    ///
    /// - Parameters:
    ///   - connection: The connection.
    ///   - role: This side's role in the handshake.
    ///   - error: Why; nil: this side closed the connection.
    ///   - times: How long it took until then; zero when plaintext before it was refused.
    func connection(
        _ connection: ObservedConnection, didFailToSecureAs role: TLSRole, error: AsyncSocketError?,
        times: HandshakeTimes)

    /// A listener has stopped accepting for a while. Connections wait in the kernel's backlog. On an event
    /// loop.
    func acceptingDidPause(_ pause: AcceptPause)

    /// Nothing took an accepted connection, and it was closed.
    ///
    /// With the reason `.notKept` it may begin and end too. On the delegate queue of the listener, or an
    /// event loop if it has none.
    ///
    /// - Parameters:
    ///   - peer: The peer's address.
    ///   - loss: Why.
    func didLoseAcceptedConnection(from peer: SocketAddress, _ loss: AcceptLoss)
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
    public func didLoseAcceptedConnection(from peer: SocketAddress, _ loss: AcceptLoss) {}
}

/// How a connection came to be.
public enum ConnectionRole: String, Sendable, Hashable, CaseIterable {
    /// By `connect`.
    case client
    /// A listener accepted it.
    case server
    /// Other code made it, and a socket adopted it.
    case adopted
}

/// A connection that an observer learns about.
public struct ObservedConnection: Sendable, Hashable {
    /// The number of the connection in this process, which the log has too.
    public let number: UInt64
    /// How it came to be.
    public let role: ConnectionRole
    /// The address of the peer, or of the proxy; nil when the peer was gone before it was known.
    public let peer: SocketAddress?

    /// A connection that does not exist: for tests of observers.
    public init(number: UInt64, role: ConnectionRole, peer: SocketAddress? = nil) {
        self.number = number
        self.role = role
        self.peer = peer
    }
}

/// How long a TLS handshake took.
public struct HandshakeTimes: Sendable, Hashable {
    /// Seconds from its beginning to its end.
    public let seconds: Double
    /// Of these, seconds in which it waited for the decision about the peer's certificate, by a delegate or a
    /// task; zero when OpenSSL decided alone.
    public let trustSeconds: Double

    /// Times of your own: for tests of observers.
    public init(seconds: Double, trustSeconds: Double = 0) {
        self.seconds = seconds
        self.trustSeconds = trustSeconds
    }
}

/// The bytes that a connection carried until its end, and how long it lasted.
public struct ConnectionTotals: Sendable, Hashable {
    /// Bytes that came for your reads, read or not: with TLS, decrypted.
    public let bytesReceived: Int
    /// Bytes of your writes that the kernel has taken or, with TLS, that were encrypted.
    public let bytesSent: Int
    /// Seconds from the beginning of the connection to its end.
    public let seconds: Double

    /// Totals of your own: for tests of observers.
    public init(bytesReceived: Int, bytesSent: Int, seconds: Double) {
        self.bytesReceived = bytesReceived
        self.bytesSent = bytesSent
        self.seconds = seconds
    }
}

/// A listener has stopped accepting for a while.
public struct AcceptPause: Sendable, Hashable {
    /// Why a listener stops.
    public enum Reason: Sendable, Hashable {
        /// As many connections are open as `maximumAcceptedConnections` allows.
        case connectionLimit
        /// The process or the system has no descriptors or no memory left; the error has the `errno`.
        case shortage(AsyncSocketError)
        /// The kernel refuses to accept, for example because of a security module. The error has the `errno`.
        /// After twelve refusals in a row the listener closes with this error.
        case refused(AsyncSocketError)
    }

    /// Why it stops.
    public let reason: Reason
    /// When it tries again, in seconds; nil: when a connection is closed, or the limit changes.
    public let seconds: Double?
    /// The listener's address, the first if it has several.
    public let listener: SocketAddress?

    /// A pause of your own: for tests of observers.
    public init(reason: Reason, seconds: Double?, listener: SocketAddress? = nil) {
        self.reason = reason
        self.seconds = seconds
        self.listener = listener
    }
}

/// Why nothing took an accepted connection.
public enum AcceptLoss: Sendable, Hashable {
    /// The listener's delegate is gone: a socket holds it weakly.
    case noDelegate
    /// The delegate did not keep the socket of `socket(_:didAcceptNewSocket:)`.
    case notKept
    /// The socket could not be made: the system lacks what it needs, or the kernel refuses an option.
    case failed(AsyncSocketError)
}

public import Dispatch
internal import SocketBuffers
public import SocketCore
public import SocketTLS
internal import Synchronization

/// An asynchronous UDP socket for delegates and tasks.
///
/// The API follows `GCDAsyncUdpSocket`. All methods can be called from any thread, and no method blocks its
/// thread on the network or on the delegate.
///
/// A socket is in use from its first bind, connect or send until `disconnect()`. An error for one datagram is
/// reported for that datagram, and the socket stays open. A closed socket cannot be reused; create a new one.
/// A socket closes when its last reference is released, and its delegate then receives no more callbacks.
///
/// The socket has one descriptor per IP version that it uses. All its descriptors share one port.
public final class AsyncUDPSocket: Sendable {
    struct WeakReference: WeakDelegate {
        private(set) weak var delegate: (any AsyncUDPSocketDelegate)?

        init(_ delegate: (any AsyncUDPSocketDelegate)?) {
            self.delegate = delegate
        }
    }

    typealias Audience = DelegateSlot<WeakReference>

    struct State {
        var audience: Audience
        var configuration = DatagramConfiguration.initial
        var options = SocketOptionSet()
        var userData: (any Sendable)?
        /// Chosen on first use and then kept.
        var loop: SocketEventLoop?
        /// Created on first use and then kept.
        var connection: DatagramConnection?
    }

    let state: Locked<State>
    let delegateChanges = Atomic(0)
    let socketQueue: DispatchQueue?

    /// Creates a socket for use by tasks, or for a delegate that is set later.
    public convenience init() {
        self.init(Audience(nil, queue: nil), socketQueue: nil)
    }

    /// Creates a socket that calls its delegate on a dispatch queue. See the corresponding initializer of
    /// `AsyncSocket`.
    ///
    /// - Parameters:
    ///   - delegate: The object that receives the callbacks. The socket holds it weakly, so keep a reference
    ///     to it.
    ///   - delegateQueue: The serial queue on which the delegate is called. A global queue traps.
    ///   - socketQueue: A serial queue on which the socket runs. If `nil` (recommended), the socket runs on
    ///     the event loops.
    public convenience init<Delegate: AsyncUDPSocketDelegate & SendableMetatype>(
        delegate: Delegate?, delegateQueue: DispatchQueue, socketQueue: DispatchQueue? = nil
    ) {
        self.init(Audience(delegate, queue: delegateQueue), socketQueue: socketQueue)
    }

    /// Creates a socket that calls its delegate on the main queue. Use it for delegates that are isolated to
    /// the main actor.
    ///
    /// - Parameters:
    ///   - delegate: The object that receives the callbacks. The socket holds it weakly, so keep a reference
    ///     to it.
    ///   - socketQueue: See `init(delegate:delegateQueue:socketQueue:)`.
    @MainActor
    public convenience init(delegate: any AsyncUDPSocketDelegate, socketQueue: DispatchQueue? = nil) {
        self.init(Audience(delegate, queue: .main), socketQueue: socketQueue)
    }

    /// Creates a socket that calls its delegate on the socket's event loop, without switching threads.
    ///
    /// This is the fastest option. Callbacks must be short and must never block: see
    /// `AsyncSocket.init(inlineDelegate:socketQueue:)`.
    ///
    /// - Parameters:
    ///   - inlineDelegate: The object that receives the callbacks. The socket holds it weakly, so keep a
    ///     reference to it.
    ///   - socketQueue: A serial queue on which the socket runs and the delegate is called. If `nil`
    ///     (recommended), the event loops are used.
    public convenience init<Delegate: AsyncUDPSocketDelegate & Sendable>(
        inlineDelegate: Delegate?, socketQueue: DispatchQueue? = nil
    ) {
        self.init(Audience(inlineDelegate, queue: nil), socketQueue: socketQueue)
    }

    private init(_ audience: Audience, socketQueue: DispatchQueue?) {
        audience.queue?.requireSerial()
        socketQueue?.requireSerial()
        state = Locked(State(audience: audience))
        self.socketQueue = socketQueue
    }

    deinit {
        state.withLock { $0.connection }?.post(.close(nil))
    }

    // MARK: - Delegate

    /// Replaces the delegate and its queue. Pending events are delivered to the new delegate.
    ///
    /// - Parameters:
    ///   - delegate: The new delegate, held weakly. To remove the delegate, call `removeDelegate()`.
    ///   - delegateQueue: A serial queue: see `init(delegate:delegateQueue:socketQueue:)`.
    public func setDelegate<Delegate: AsyncUDPSocketDelegate & SendableMetatype>(
        _ delegate: Delegate?, delegateQueue: DispatchQueue
    ) {
        replaceAudience(with: Audience(delegate, queue: delegateQueue))
    }

    /// Sets a delegate that is called on the main queue, replacing the old delegate. See
    /// `setDelegate(_:delegateQueue:)`.
    @MainActor
    public func setDelegate(_ delegate: any AsyncUDPSocketDelegate) {
        replaceAudience(with: Audience(delegate, queue: .main))
    }

    /// Sets a delegate that is called on the event loop, replacing the old delegate. See
    /// `init(inlineDelegate:socketQueue:)`.
    ///
    /// Pending events are delivered to the new delegate, possibly still on the old queue.
    ///
    /// - Parameter inlineDelegate: The new delegate, held weakly. If `nil`, callbacks are dropped.
    public func setInlineDelegate<Delegate: AsyncUDPSocketDelegate & Sendable>(_ inlineDelegate: Delegate?) {
        replaceAudience(with: Audience(inlineDelegate, queue: nil))
    }

    /// The queue on which the delegate is called, or `nil` if it is called on the socket's event loop.
    public var delegateQueue: DispatchQueue? {
        state.withLock { $0.audience.queue }
    }

    /// Removes the delegate. The socket stays open and continues to work.
    public func removeDelegate() {
        replaceAudience(with: Audience(nil, queue: nil))
    }

    private func replaceAudience(with audience: Audience) {
        audience.queue?.requireSerial()
        let connection = state.withLock { state in
            state.audience = audience
            return state.connection
        }
        delegateChanges.add(1, ordering: .releasing)
        connection?.post(.changeDelegateQueue)
    }

    // MARK: - Implementation

    var connection: DatagramConnection? { state.withLock { $0.connection } }

    /// Returns the socket's connection, creating it on first use.
    func use(
        _ operation: AsyncSocketError.Operation, as role: ConnectionRole = .server
    ) throws(AsyncSocketError) -> DatagramConnection {
        if let connection { return connection }
        let new = DatagramConnection(for: self, as: role, on: try chooseLoop(operation))
        new.register()
        let connection = state.withLock { state in
            if let connection = state.connection { return connection }
            new.outlet.callBack(on: state.audience.queue, unlessItIs: socketQueue)
            // Done under the lock, so that no option is lost: options set earlier are copied now, and options
            // set later are also set on the connection.
            new.begin(state.configuration, state.options)
            state.connection = new
            return new
        }
        // Another thread created the connection first.
        if connection !== new { new.deregister() }
        return connection
    }

    /// Makes this a listener's socket for one peer. Call this before the socket is shared.
    func serve(
        _ channel: PeerChannel, to key: PeerKey, like model: AsyncUDPSocket, on loop: SocketEventLoop
    ) -> DatagramConnection {
        let connection = DatagramConnection(for: self, as: .server, on: loop)
        connection.register()
        var configuration = model.configuration
        // The listener applies the rate limit itself.
        configuration.rateLimit = nil
        let shared = DatagramConfiguration.Shared(configuration)
        connection.begin(shared, SocketOptionSet())
        connection.serve(channel, to: key)
        state.withLock { state in
            (state.loop, state.connection, state.configuration) = (loop, connection, shared)
        }
        return connection
    }

    /// Returns the socket's event loop, choosing one on first use.
    func chooseLoop(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> SocketEventLoop {
        if let loop = state.withLock({ $0.loop }) { return loop }
        let loop = try SocketEventLoop.next(for: operation)
        return state.withLock { state in
            let chosen = state.loop ?? loop
            state.loop = chosen
            return chosen
        }
    }
}

/// The callbacks of a UDP socket.
///
/// All methods are optional. The default implementations ignore the event or, for trust decisions, reject the
/// peer. Callbacks are delivered as described in `AsyncSocketDelegate`: on the queue that was set with the
/// delegate or, for an inline delegate, on the socket's event loop. They are called one at a time, in the
/// order of the events, and never from within a call that you make to the socket.
public protocol AsyncUDPSocketDelegate: AnyObject {
    /// Called when the socket is connected. It now sends to this address and receives only from it.
    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketEndpoint)

    /// Called when an attempt to connect has failed. The socket stays open.
    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError)

    /// Called when a datagram was sent, or dropped by the send filter. This does not mean that the datagram
    /// arrived.
    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int)

    /// Called when a datagram could not be sent. The socket stays open, and later datagrams are still sent.
    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError)

    /// Called when the bytes queued for sending reach `sendHighWaterMark`. Stop sending until the queue has
    /// drained.
    ///
    /// Called again only after `udpSocket(_:sendQueueReachedLowWater:)`.
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedHighWater byteCount: Int)

    /// Called when the queue has drained to half of `sendHighWaterMark` or less after reaching it. Resume
    /// sending.
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedLowWater byteCount: Int)

    /// Called when a datagram arrives.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - datagram: The payload, its sender, and information about its arrival.
    ///   - context: The value that the receive filter attached, if any.
    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?)

    /// Called when the network reports (ICMP) that a sent datagram was not delivered, usually because no
    /// program is using the destination port.
    ///
    /// Most losses are not reported, and any host on the network path can forge a report. If the delegate
    /// falls behind, some reports are dropped. Tasks use `AsyncUDPSocket.deliveryFailures()` instead.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - address: The destination of the datagram, or `nil` if the kernel no longer knows it.
    ///   - error: The reason, with its `errno`.
    func udpSocket(_ socket: AsyncUDPSocket, didFailToReach address: SocketEndpoint?, dueToError error: AsyncSocketError)

    /// Decides whether to trust the peer.
    ///
    /// Called at most once per socket, and only if the settings' `trustEvaluation` requires it: see
    /// `AsyncSocketDelegate.socket(_:didReceive:completionHandler:)`. The default implementation rejects the
    /// peer.
    ///
    /// Call `completionHandler` exactly once, from any thread, within `trustTimeout`. Until then, no data is
    /// sent or received.
    func udpSocket(
        _ socket: AsyncUDPSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void)

    /// Called when the socket is secure. All data sent and received from now on is encrypted. See
    /// `tlsSession`.
    func udpSocketDidSecure(_ socket: AsyncUDPSocket)

    /// Called when the socket has closed. This is the last callback, made once for each socket that was in
    /// use.
    ///
    /// `error` is `nil` if the program closed the socket. A failure to send a single datagram never closes a
    /// socket. A DTLS failure closes it, and so does the peer's close_notify (`.closedByPeer`).
    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?)
}

// Default implementations that make every method optional.
extension AsyncUDPSocketDelegate {
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketEndpoint) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedHighWater byteCount: Int) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedLowWater byteCount: Int) {}
    /// Ignores the event.
    public func udpSocket(
        _ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?
    ) {}
    /// Ignores the event.
    public func udpSocket(_ socket: AsyncUDPSocket, didFailToReach address: SocketEndpoint?, dueToError error: AsyncSocketError) {
    }
    /// Rejects the peer.
    public func udpSocket(
        _ socket: AsyncUDPSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) { completionHandler(false) }
    /// Ignores the event.
    public func udpSocketDidSecure(_ socket: AsyncUDPSocket) {}
    /// Ignores the event.
    public func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {}
}

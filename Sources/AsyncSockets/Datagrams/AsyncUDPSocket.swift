public import Dispatch
internal import SocketBuffers
public import SocketCore
public import SocketTLS
internal import Synchronization

/// An asynchronous UDP socket, with a delegate or for tasks.
///
/// It uses the vocabulary of `GCDAsyncUdpSocket`. You may call every method from any thread, and none waits
/// for the network or for the delegate.
///
/// A socket is bound to an address, or connects to a peer, or sends: then it is in use, until `close()`. An
/// error of one datagram is an answer about that datagram, and the socket stays open. A socket that was
/// closed is over: make another one. When the last reference to a socket goes away, it closes, and its
/// delegate gets no more callbacks.
///
/// It has a descriptor for each version of IP that it uses, both on one port.
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
        /// Chosen at the first use, and kept.
        var loop: EventLoop?
        /// Made at the first use, and kept.
        var connection: DatagramConnection?
    }

    let state: Locked<State>
    /// How many times the delegate has changed.
    let delegateChanges = Atomic(0)
    let socketQueue: DispatchQueue?

    /// A socket that tasks use, or that gets its delegate later.
    public convenience init() {
        self.init(Audience(nil, queue: nil), socketQueue: nil)
    }

    /// A socket whose delegate is called on a queue: see the same initializer of `AsyncSocket`.
    ///
    /// - Parameters:
    ///   - delegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - delegateQueue: The serial queue on which the delegate is called; a global queue traps.
    ///   - socketQueue: A serial queue on which the socket runs; nil (recommended): the event loops.
    public convenience init<Delegate: AsyncUDPSocketDelegate & SendableMetatype>(
        delegate: Delegate?, delegateQueue: DispatchQueue, socketQueue: DispatchQueue? = nil
    ) {
        self.init(Audience(delegate, queue: delegateQueue), socketQueue: socketQueue)
    }

    /// A socket whose delegate is called on the main queue, such as one that is isolated to the main actor.
    ///
    /// - Parameters:
    ///   - delegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - socketQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    @MainActor
    public convenience init(delegate: any AsyncUDPSocketDelegate, socketQueue: DispatchQueue? = nil) {
        self.init(Audience(delegate, queue: .main), socketQueue: socketQueue)
    }

    /// A socket whose delegate is called on the socket's event loop, without a change of thread: the fastest
    /// way. Be quick in the callbacks, and never block: see `AsyncSocket.init(inlineDelegate:socketQueue:)`.
    ///
    /// - Parameters:
    ///   - inlineDelegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - socketQueue: A serial queue on which the socket runs and the delegate is called; nil
    ///     (recommended): the event loops.
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

    // MARK: - The delegate

    /// Sets another delegate and its queue. Events on their way to the old delegate go to the new one.
    ///
    /// - Parameters:
    ///   - delegate: Held weakly; `removeDelegate()` sets none.
    ///   - delegateQueue: A serial queue, as for `init(delegate:delegateQueue:socketQueue:)`.
    public func setDelegate<Delegate: AsyncUDPSocketDelegate & SendableMetatype>(
        _ delegate: Delegate?, delegateQueue: DispatchQueue
    ) {
        replaceAudience(with: Audience(delegate, queue: delegateQueue))
    }

    /// Sets another delegate, which is called on the main queue: see `setDelegate(_:delegateQueue:)`.
    @MainActor
    public func setDelegate(_ delegate: any AsyncUDPSocketDelegate) {
        replaceAudience(with: Audience(delegate, queue: .main))
    }

    /// Sets another delegate, which is called on the event loop, as with `init(inlineDelegate:socketQueue:)`.
    /// Events on their way to the old delegate go to the new one, and may still come on the old queue.
    ///
    /// - Parameter inlineDelegate: Held weakly; nil: the callbacks are dropped.
    public func setInlineDelegate<Delegate: AsyncUDPSocketDelegate & Sendable>(_ inlineDelegate: Delegate?) {
        replaceAudience(with: Audience(inlineDelegate, queue: nil))
    }

    /// The queue on which the delegate is called; nil: the socket's event loop.
    public var delegateQueue: DispatchQueue? {
        state.withLock { $0.audience.queue }
    }

    /// Removes the delegate. The socket goes on.
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

    // MARK: - Inside

    /// The work of the socket, from its first use on.
    var connection: DatagramConnection? { state.withLock { $0.connection } }

    /// The same, made now if this is the first use.
    func use(_ operation: String, as role: ConnectionRole = .server) throws(AsyncSocketError) -> DatagramConnection {
        if let connection { return connection }
        let new = DatagramConnection(for: self, as: role, on: try chooseLoop(operation))
        new.register()
        let connection = state.withLock { state in
            if let connection = state.connection { return connection }
            new.outlet.callBack(on: state.audience.queue, unlessItIs: socketQueue)
            // Under the lock: an option set from now on finds the connection, and one set before is not lost.
            new.begin(state.configuration, state.options)
            state.connection = new
            return new
        }
        // Another thread was first.
        if connection !== new { new.deregister() }
        return connection
    }

    /// Becomes the socket of a listener's peer. Before anyone else has it.
    func serve(
        _ channel: PeerChannel, to key: PeerKey, like model: AsyncUDPSocket, on loop: EventLoop
    ) -> DatagramConnection {
        let connection = DatagramConnection(for: self, as: .server, on: loop)
        connection.register()
        var configuration = model.configuration
        // The listener has applied it.
        configuration.rateLimit = nil
        let shared = DatagramConfiguration.Shared(configuration)
        connection.begin(shared, SocketOptionSet())
        connection.serve(channel, to: key)
        state.withLock { state in
            (state.loop, state.connection, state.configuration) = (loop, connection, shared)
        }
        return connection
    }

    /// The socket's loop.
    func chooseLoop(_ operation: String) throws(AsyncSocketError) -> EventLoop {
        if let loop = state.withLock({ $0.loop }) { return loop }
        let loop = try EventLoop.next(for: operation)
        return state.withLock { state in
            let chosen = state.loop ?? loop
            state.loop = chosen
            return chosen
        }
    }
}

/// The callbacks of a UDP socket.
///
/// Every method is optional: the default does nothing. They are called as in `AsyncSocketDelegate`:
/// on the queue that you set with the delegate or, for an inline delegate, on the socket's event loop; one at
/// a time, in the order in which things happened; never from within a call that you make to the socket.
public protocol AsyncUDPSocketDelegate: AnyObject {
    /// The socket is connected: it sends to this address, and hears this address alone.
    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketAddress)

    /// An attempt to connect has failed. The socket stays open.
    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError)

    /// A datagram has left, or the send filter has dropped it. That does not mean that it arrives.
    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int)

    /// A datagram has not left. The socket stays open, and later ones are sent.
    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError)

    /// The bytes that wait to be sent have reached `sendHighWaterMark`: stop sending until some
    /// have left.
    ///
    /// Called again after `udpSocket(_:sendQueueReachedLowWater:)`.
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedHighWater byteCount: Int)

    /// After the high-water mark was reached, no more than half of `sendHighWaterMark` waits: go on sending.
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedLowWater byteCount: Int)

    /// A datagram has arrived.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - datagram: Its bytes, its sender, and how it arrived.
    ///   - context: The receive filter has added it.
    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?)

    /// A datagram that had left did not arrive, as a router or the peer's machine reports (ICMP): mostly, no
    /// program has the port. Most losses are not reported, and anyone on the way can forge a report. A
    /// delegate that is behind does not get all of them. Tasks have `AsyncUDPSocket.deliveryFailures()`.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - address: Where it was sent to; nil when the kernel has lost that.
    ///   - error: Why, with its `errno`.
    func udpSocket(_ socket: AsyncUDPSocket, didFailToReach address: SocketAddress?, dueToError error: AsyncSocketError)

    /// Decide whether to trust the peer. Called at most once for a socket, and only when the settings'
    /// `trustEvaluation` asks for it: see `AsyncSocketDelegate.socket(_:didReceive:completionHandler:)`. The
    /// default refuses.
    ///
    /// Answer by calling `completionHandler` once, from any thread, within `trustTimeout`. Meanwhile no data
    /// moves in either direction.
    func udpSocket(
        _ socket: AsyncUDPSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void)

    /// The socket is secure: everything sent and received from here on is encrypted. See `tlsSession`.
    func udpSocketDidSecure(_ socket: AsyncUDPSocket)

    /// The socket is closed: the last callback, once for each socket that was in use.
    ///
    /// `error` is nil after `close()` and the like. An error of a datagram never closes a socket; a failure
    /// of DTLS does, and so does the peer's close_notify (`.closedByPeer`).
    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?)
}

// The defaults that make every method optional.
extension AsyncUDPSocketDelegate {
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketAddress) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedHighWater byteCount: Int) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedLowWater byteCount: Int) {}
    /// Does nothing.
    public func udpSocket(
        _ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?
    ) {}
    /// Does nothing.
    public func udpSocket(_ socket: AsyncUDPSocket, didFailToReach address: SocketAddress?, dueToError error: AsyncSocketError) {}
    /// Refuses the peer.
    public func udpSocket(
        _ socket: AsyncUDPSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) { completionHandler(false) }
    /// Does nothing.
    public func udpSocketDidSecure(_ socket: AsyncUDPSocket) {}
    /// Does nothing.
    public func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {}
}

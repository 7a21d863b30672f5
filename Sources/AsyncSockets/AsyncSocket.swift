public import Dispatch
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// An asynchronous TCP socket that can be upgraded to TLS while it is in use.
///
/// The socket uses the vocabulary of `GCDAsyncSocket`: it queues operations, performs them in order, and
/// delivers the results to a delegate. You may call every method from any thread. No method blocks on the
/// network, on another socket or on the delegate.
///
/// A socket makes one connection at a time, or listens. You can use it again after `socketDidDisconnect`.
/// When the last reference to a socket is released, its connection closes, and its delegate receives no
/// further callbacks.
public final class AsyncSocket: Sendable {
    enum Occupation {
        case nothing
        case connection(StreamConnection)
        case listening(Listener, EventOutlet<AsyncSocket>)
    }

    struct WeakReference: WeakDelegate {
        private(set) weak var delegate: (any AsyncSocketDelegate)?

        init(_ delegate: (any AsyncSocketDelegate)?) {
            self.delegate = delegate
        }
    }

    typealias Audience = DelegateSlot<WeakReference>

    struct State {
        var audience: Audience
        var occupation = Occupation.nothing
        var configuration = SocketConfiguration.initial
        var options = SocketOptionSet()
        /// `nil` on most sockets.
        var extras: CopyOnWrite<SocketExtras>?
        /// Created when the socket listens for the first time.
        var quota: AcceptQuota?
        /// Chosen at the first use and then kept, so that the end of one connection is delivered before the
        /// start of the next.
        var loop: SocketEventLoop?
    }

    let state: Locked<State>
    let callback = CurrentCallback<StreamConnection>()
    /// The number of times the delegate has changed. Code that holds a delegate can thus check whether it is
    /// still current.
    let delegateChanges = Atomic(0)
    let socketQueue: DispatchQueue?

    /// Creates a socket for use by tasks. You can also set a delegate later.
    ///
    /// Until a delegate is set, `autoDisconnectOnClosedReadStream` is `false`: you may continue writing after
    /// the peer has closed its side.
    public convenience init() {
        self.init(Audience(nil, queue: nil), socketQueue: nil)
        state.withLock { $0.configuration = SocketConfiguration.ofTasks }
    }

    /// Creates a socket that calls its delegate on a queue.
    ///
    /// The delegate needs no locks and need not be `Sendable`, because its methods are called one at a time.
    /// A delegate that is isolated to the main actor does not compile here: use
    /// `init(delegate:socketQueue:)`, which calls it on the main queue. (If the main actor is the default
    /// isolation of your target, declare a delegate with a queue of your own as `nonisolated final class`.)
    /// Keep references to both the delegate and the socket: neither retains the other. A queue that is
    /// blocked in a callback occupies one of the 64 threads that libdispatch has for the whole process. Share
    /// one queue among many sockets, and never block in a callback.
    ///
    /// - Parameters:
    ///   - delegate: The object that receives the callbacks. The socket holds it weakly: keep a reference.
    ///   - delegateQueue: The serial queue on which the delegate is called. It must not be a concurrent
    ///     queue; a global queue traps at run time.
    ///   - socketQueue: A serial queue on which the socket runs, or `nil` (recommended) to run it on an event
    ///     loop. The queue may target another queue, and sockets may share it. It must not be a concurrent
    ///     queue.
    public convenience init<Delegate: AsyncSocketDelegate & SendableMetatype>(
        delegate: Delegate?, delegateQueue: DispatchQueue, socketQueue: DispatchQueue? = nil
    ) {
        // Generic, because only then does the compiler reject a conformance that is isolated to the main
        // actor.
        self.init(Audience(delegate, queue: delegateQueue), socketQueue: socketQueue)
    }

    /// Creates a socket that calls its delegate on the main queue, for example a delegate that is isolated to
    /// the main actor.
    ///
    /// - Parameters:
    ///   - delegate: The object that receives the callbacks. The socket holds it weakly: keep a reference.
    ///   - socketQueue: See `init(delegate:delegateQueue:socketQueue:)`.
    @MainActor
    public convenience init(delegate: any AsyncSocketDelegate, socketQueue: DispatchQueue? = nil) {
        self.init(Audience(delegate, queue: .main), socketQueue: socketQueue)
    }

    /// Creates a socket that calls its delegate on the socket's event loop, without switching threads. This
    /// is the fastest way to use a delegate.
    ///
    /// Return from callbacks quickly and never block, because other connections share the event loop. The
    /// callbacks of one socket are called one at a time. If several sockets share the delegate, such as the
    /// accepted sockets of a listener, their callbacks run concurrently on several threads. The delegate must
    /// therefore be `Sendable`.
    ///
    /// - Parameters:
    ///   - inlineDelegate: The object that receives the callbacks. The socket holds it weakly: keep a
    ///     reference.
    ///   - socketQueue: A serial queue on which the socket runs and the delegate is called, or `nil`
    ///     (recommended) to use an event loop.
    public convenience init<Delegate: AsyncSocketDelegate & Sendable>(
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

    /// Creates a socket with the delegate, the delegate queue, the configuration and the options of `parent`.
    init(childOf parent: AsyncSocket, socketQueue: DispatchQueue?, loop: SocketEventLoop) {
        state = Locked(
            parent.state.withLock {
                State(audience: $0.audience, configuration: $0.configuration, options: $0.options, loop: loop)
            })
        self.socketQueue = socketQueue
    }

    deinit {
        state.withLock { $0.occupation }.close(.abandoned)
    }

    // MARK: - Delegate

    /// Replaces the delegate and its queue. Events that are still undelivered go to the new delegate.
    ///
    /// A connection starts delivering on the new queue once the callback that is running on the old queue has
    /// returned.
    ///
    /// - Parameters:
    ///   - delegate: The new delegate, held weakly. To remove a delegate, call `removeDelegate()`.
    ///   - delegateQueue: A serial queue: see `init(delegate:delegateQueue:socketQueue:)`.
    public func setDelegate<Delegate: AsyncSocketDelegate & SendableMetatype>(
        _ delegate: Delegate?, delegateQueue: DispatchQueue
    ) {
        replaceAudience(with: Audience(delegate, queue: delegateQueue), servesDelegate: true)
    }

    /// Replaces the delegate, and calls the new delegate on the main queue: see
    /// `setDelegate(_:delegateQueue:)`.
    @MainActor
    public func setDelegate(_ delegate: any AsyncSocketDelegate) {
        replaceAudience(with: Audience(delegate, queue: .main), servesDelegate: true)
    }

    /// Replaces the delegate, and calls the new delegate on the event loop, as with
    /// `init(inlineDelegate:socketQueue:)`. Events that are still undelivered go to the new delegate,
    /// possibly on the old queue.
    ///
    /// - Parameter inlineDelegate: The new delegate, held weakly, or `nil` for no callbacks.
    public func setInlineDelegate<Delegate: AsyncSocketDelegate & Sendable>(_ inlineDelegate: Delegate?) {
        replaceAudience(with: Audience(inlineDelegate, queue: nil), servesDelegate: true)
    }

    /// The queue on which the delegate is called, or `nil` if it is called on the socket's event loop.
    public var delegateQueue: DispatchQueue? {
        state.withLock { $0.audience.queue }
    }

    /// Removes the delegate. An existing connection stays open. A listener closes the connections it accepts.
    public func removeDelegate() {
        replaceAudience(with: Audience(nil, queue: nil))
    }

    private func replaceAudience(with audience: Audience, servesDelegate: Bool = false) {
        audience.queue?.requireSerial()
        // The socket now uses the defaults of a socket with a delegate.
        if servesDelegate, configuration.isServingTasks { autoDisconnectOnClosedReadStream = true }
        let occupation = state.withLock { state in
            state.audience = audience
            return state.occupation
        }
        delegateChanges.add(1, ordering: .releasing)
        if case .connection(let connection) = occupation { connection.post(.changeDelegateQueue) }
    }

    /// Whether a delegate is set and still exists.
    var hasDelegate: Bool {
        // Copied, so that it is released outside the lock: this may become the last reference, and the
        // delegate's `deinit` may call the socket.
        var (delegate, queue): ((any AsyncSocketDelegate)?, DispatchQueue?) = (nil, nil)
        copyDelegate(to: &delegate, &queue)
        return delegate != nil
    }

    // MARK: - Internals

    /// The current connection, or the most recent one after it has closed.
    var connection: StreamConnection? {
        state.withLock { state in
            if case .connection(let connection) = state.occupation { connection } else { nil }
        }
    }

    /// Calls `body` with the connection to read from or write to, if the socket has a connection. In an
    /// inline callback of that connection, the lookup needs neither a lock nor reference counting.
    @inline(__always)
    func withConnection(_ body: (StreamConnection) -> Void) {
        if callback.withConnection(body) { return }
        guard let connection else {
            return logger.debug("a read or write was dropped because the socket is not in use: call connect first")
        }
        body(connection)
    }

    /// Sets the occupation of the socket, unless an earlier occupation is still active.
    func occupy(_ operation: AsyncSocketError.Operation, with occupation: Occupation) throws(AsyncSocketError) {
        let predecessor = state.withLock { state -> Occupation? in
            let predecessor = state.occupation
            guard predecessor.isOver else { return nil }
            state.occupation = occupation
            if state.extras?.value.proxyHeader != nil { state.extras?.value.proxyHeader = nil }
            if case .connection(let old) = predecessor { old.outlet.supersede() }
            // Under the lock: an option set from now on reaches the connection, and an option set before is
            // not lost.
            if case .connection(let connection) = occupation { prepare(connection, after: predecessor, &state) }
            return predecessor
        }
        guard let predecessor else {
            throw .badConfiguration(operation, "the socket is connecting, connected or listening: disconnect it first")
        }
        occupation.follow(predecessor)
    }

    private func prepare(_ connection: StreamConnection, after predecessor: Occupation, _ state: inout State) {
        switch predecessor {
        case .nothing: break
        case .listening: connection.outlet.isHeldBack = true
        case .connection: (connection.outlet.isHeldBack, connection.waitsForClosing) = (true, true)
        }
        connection.data.configuration = state.configuration
        connection.outlet.callBack(on: state.audience.queue, unlessItIs: socketQueue)
        connection.record.withLock { $0.live.options = state.options }
    }
}

extension AsyncSocket.Occupation {
    private var isNothing: Bool {
        if case .nothing = self { true } else { false }
    }

    fileprivate var isOver: Bool {
        switch self {
        case .nothing: true
        case .connection(let connection): connection.record.withLock { $0.isOver }
        case .listening(let listener, _): !listener.isOpen
        }
    }

    /// Holds back every event of this occupation until the end of `predecessor` is delivered. A listener also
    /// starts only then.
    fileprivate func follow(_ predecessor: Self) {
        switch self {
        case .nothing: break
        case .connection where predecessor.isNothing: break
        case .listening(let listener, _): predecessor.whenEndIsTold { listener.start() }
        case .connection(let connection):
            if case .connection(let old) = predecessor { old.closed.whenReached { connection.post(.predecessorIsClosed) } }
            predecessor.whenEndIsTold { connection.post(.predecessorHasEnded) }
        }
    }

    /// Calls `body` once the end of this occupation has been delivered, or immediately if the socket was
    /// unused.
    private func whenEndIsTold(_ body: @escaping @Sendable () -> Void) {
        switch self {
        case .nothing: body()
        case .connection(let connection): connection.outlet.end.whenReached(body)
        case .listening(_, let outlet): outlet.end.whenReached(body)
        }
    }

    func close(_ intent: CloseIntent) {
        switch self {
        case .nothing: break
        case .connection(let connection): if !connection.isRetired { connection.post(.close(intent)) }
        case .listening(let listener, _): listener.close()
        }
    }
}

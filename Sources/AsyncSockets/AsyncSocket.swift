public import Dispatch
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// An asynchronous TCP socket that can turn into a TLS connection while it is in use.
///
/// It uses the vocabulary of `GCDAsyncSocket`: it queues operations, serves them in order, and delivers the
/// results to a delegate. You may call every method from any thread. No method waits for the network, for
/// another socket or for the delegate.
///
/// A socket makes one connection at a time, or listens. You can use it again after `socketDidDisconnect`.
/// When the last reference to a socket goes away, its connection closes, and its delegate gets no more
/// callbacks.
public final class AsyncSocket: Sendable {
    /// The current use of the socket.
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
        /// Nil on most sockets.
        var extras: CopyOnWrite<SocketExtras>?
        /// Made when the socket listens for the first time.
        var quota: AcceptQuota?
        /// Chosen at the first use, and kept: the end of one connection is then delivered before the
        /// beginning of the next.
        var loop: EventLoop?
    }

    let state: Locked<State>
    let callback = CurrentCallback<StreamConnection>()
    /// How many times the delegate has changed: code that holds a delegate can see whether it is still the
    /// current one.
    let delegateChanges = Atomic(0)
    let socketQueue: DispatchQueue?

    /// A socket that tasks use, or that gets its delegate later.
    ///
    /// Until it gets a delegate, `autoDisconnectOnClosedReadStream` is false: when the peer has closed its
    /// side you may go on writing.
    public convenience init() {
        self.init(Audience(nil, queue: nil), socketQueue: nil)
        state.withLock { $0.configuration = SocketConfiguration.ofTasks }
    }

    /// A socket whose delegate is called on a queue.
    ///
    /// The delegate needs no lock and need not be `Sendable`: all its calls come one after the other. One on
    /// the main actor does not compile here: `init(delegate:socketQueue:)` calls it there. (Where the main
    /// actor is the default isolation of a target, write `nonisolated final class` for a delegate with a
    /// queue of your own.) Keep a reference to the delegate and to the socket: neither keeps the other. A
    /// queue that is blocked in a callback holds one of the 64 threads that libdispatch has for the whole
    /// process: give many sockets one queue, and never wait in a callback.
    ///
    /// - Parameters:
    ///   - delegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - delegateQueue: The serial queue on which the delegate is called. It must not be a concurrent
    ///     queue; a global queue traps at run time.
    ///   - socketQueue: A serial queue on which the socket runs; nil (recommended): the event loops. It may
    ///     target another queue, and sockets may share it. It must not be a concurrent queue.
    public convenience init<Delegate: AsyncSocketDelegate & SendableMetatype>(
        delegate: Delegate?, delegateQueue: DispatchQueue, socketQueue: DispatchQueue? = nil
    ) {
        // Generic, since only so does the compiler refuse a conformance that is isolated to the main actor.
        self.init(Audience(delegate, queue: delegateQueue), socketQueue: socketQueue)
    }

    /// A socket whose delegate is called on the main queue, such as one that is isolated to the main actor.
    ///
    /// - Parameters:
    ///   - delegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - socketQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    @MainActor
    public convenience init(delegate: any AsyncSocketDelegate, socketQueue: DispatchQueue? = nil) {
        self.init(Audience(delegate, queue: .main), socketQueue: socketQueue)
    }

    /// A socket whose delegate is called on the socket's event loop, without a change of thread: the fastest
    /// way.
    ///
    /// Be quick in the callbacks, and never block: other connections wait. The callbacks of one socket come
    /// one after the other. Those of several sockets with the same delegate, such as the accepted sockets of
    /// a listener, come on several threads at a time: that is why the delegate must be `Sendable`.
    ///
    /// - Parameters:
    ///   - inlineDelegate: The object that gets the callbacks. The socket holds it weakly: keep it.
    ///   - socketQueue: A serial queue on which the socket runs and the delegate is called; nil
    ///     (recommended): the event loops.
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

    /// A socket that starts with the delegate, the delegate queue, the configuration and the options of
    /// `parent`.
    init(childOf parent: AsyncSocket, socketQueue: DispatchQueue?, loop: EventLoop) {
        state = Locked(
            parent.state.withLock {
                State(audience: $0.audience, configuration: $0.configuration, options: $0.options, loop: loop)
            })
        self.socketQueue = socketQueue
    }

    deinit {
        state.withLock { $0.occupation }.close(.abandoned)
    }

    // MARK: - The delegate

    /// Sets another delegate and its queue. Events on their way to the old delegate go to the new one.
    ///
    /// A connection delivers on the new queue once the callback in progress on the old one has returned.
    ///
    /// - Parameters:
    ///   - delegate: Held weakly; `removeDelegate()` sets none.
    ///   - delegateQueue: A serial queue, as for `init(delegate:delegateQueue:socketQueue:)`.
    public func setDelegate<Delegate: AsyncSocketDelegate & SendableMetatype>(
        _ delegate: Delegate?, delegateQueue: DispatchQueue
    ) {
        replaceAudience(with: Audience(delegate, queue: delegateQueue), servesDelegate: true)
    }

    /// Sets another delegate, which is called on the main queue: see `setDelegate(_:delegateQueue:)`.
    @MainActor
    public func setDelegate(_ delegate: any AsyncSocketDelegate) {
        replaceAudience(with: Audience(delegate, queue: .main), servesDelegate: true)
    }

    /// Sets another delegate, which is called on the event loop, as with `init(inlineDelegate:socketQueue:)`.
    /// Events on their way to the old delegate go to the new one, and may still come on the old queue.
    ///
    /// - Parameter inlineDelegate: Held weakly; nil: there are no callbacks.
    public func setInlineDelegate<Delegate: AsyncSocketDelegate & Sendable>(_ inlineDelegate: Delegate?) {
        replaceAudience(with: Audience(inlineDelegate, queue: nil), servesDelegate: true)
    }

    /// The queue on which the delegate is called; nil: the socket's event loop.
    public var delegateQueue: DispatchQueue? {
        state.withLock { $0.audience.queue }
    }

    /// Removes the delegate. A connection goes on; a listener closes what it accepts.
    public func removeDelegate() {
        replaceAudience(with: Audience(nil, queue: nil))
    }

    private func replaceAudience(with audience: Audience, servesDelegate: Bool = false) {
        audience.queue?.requireSerial()
        // From now on the socket has the defaults of one with a delegate.
        if servesDelegate, configuration.isServingTasks { autoDisconnectOnClosedReadStream = true }
        let occupation = state.withLock { state in
            state.audience = audience
            return state.occupation
        }
        delegateChanges.add(1, ordering: .releasing)
        if case .connection(let connection) = occupation { connection.post(.changeDelegateQueue) }
    }

    /// False when no delegate was set, or it is gone.
    var hasDelegate: Bool {
        // Out of the lock with it: the last reference may be here, and its deinit may call the socket.
        var (delegate, queue): ((any AsyncSocketDelegate)?, DispatchQueue?) = (nil, nil)
        copyDelegate(to: &delegate, &queue)
        return delegate != nil
    }

    // MARK: - Inside

    /// The connection, while there is one or has been one.
    var connection: StreamConnection? {
        state.withLock { state in
            if case .connection(let connection) = state.occupation { connection } else { nil }
        }
    }

    /// Calls `body` with the connection that is to read or write, if there is one. An inline callback of that
    /// connection needs neither lock nor reference count to find it.
    @inline(__always)
    func withConnection(_ body: (StreamConnection) -> Void) {
        if callback.withConnection(body) { return }
        guard let connection else {
            return logger.debug("a read or write was dropped: the socket is not in use, call connect first")
        }
        body(connection)
    }

    /// Gives the socket an occupation, unless an earlier one is still going on.
    func occupy(_ operation: String, with occupation: Occupation) throws(AsyncSocketError) {
        let predecessor = state.withLock { state -> Occupation? in
            let predecessor = state.occupation
            guard predecessor.isOver else { return nil }
            state.occupation = occupation
            if state.extras?.value.proxyHeader != nil { state.extras?.value.proxyHeader = nil }
            if case .connection(let old) = predecessor { old.outlet.supersede() }
            // Under the lock: an option set from now on finds the connection, and one set before is not lost.
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

    /// True when the socket may take up something else.
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

    /// Calls `body` once the end is delivered, or at once when there is no end to wait for.
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

public import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// An asynchronous TCP socket that can turn into a TLS connection while it is in use.
///
/// It speaks the vocabulary of `GCDAsyncSocket`: operations are queued, served in order, and reported to a delegate. All methods may be called from any
/// thread, and none of them blocks; in particular none ever waits for another socket or for the delegate.
///
/// A socket makes one connection at a time, or listens. After `socketDidDisconnect` it can be used again. When the last reference
/// to a socket goes away its connection is closed, and its delegate hears nothing more.
public final class AsyncSocket: Sendable {
    /// What the socket is busy with.
    enum Occupation {
        case nothing
        case connection(StreamConnection)
        case listening(Listener)
    }

    struct State {
        var audience: DelegateSlot
        var occupation = Occupation.nothing
        var configuration = SocketConfiguration.initial
        var options = SocketOptionSet()
        var userData: CopyOnWrite<any Sendable>?
        /// Made when the socket listens for the first time.
        var quota: AcceptQuota?
        /// Chosen at the first use, and kept: the end of one connection is then told before the beginning of the next.
        var loop: EventLoop?
    }

    let state: Locked<State>
    let callback = CallbackPlace()
    /// How often the delegate was changed: who keeps it for a while can see whether it still is the one.
    let delegateChanges = Atomic(0)
    let socketQueue: DispatchQueue?

    /// A socket that is not connected yet.
    ///
    /// - Parameters:
    ///   - delegate: Who is told what happens. It is held weakly.
    ///   - delegateQueue: A serial queue on which the delegate is called; nil: on the socket's event loop, without a hop (be quick there).
    ///   - socketQueue: A serial queue on which the socket's state shall be handled; nil (recommended): on the event loops. It may target other queues, and
    ///     may be shared among sockets. A concurrent queue is an error in the calling program.
    public init(
        delegate: (any AsyncSocketDelegate)? = nil, delegateQueue: DispatchQueue? = nil, socketQueue: DispatchQueue? = nil
    ) {
        state = Locked(State(audience: DelegateSlot(delegate, queue: delegateQueue)))
        self.socketQueue = socketQueue
    }

    /// A socket that begins with the delegate, the delegate queue, the settings and the options of `parent`.
    init(childOf parent: AsyncSocket, socketQueue: DispatchQueue?) {
        state = Locked(
            parent.state.withLock {
                State(audience: $0.audience, configuration: $0.configuration, options: $0.options)
            })
        self.socketQueue = socketQueue
    }

    deinit {
        state.withLock { $0.occupation }.close()
    }

    // MARK: - The delegate

    /// Who is told what happens; held weakly. Events that are on their way go to whoever is the delegate when they arrive.
    public var delegate: (any AsyncSocketDelegate)? {
        get { state.withLock { DelegateSlot.Reference($0.audience.delegate) }.delegate }
        set {
            let reference = DelegateSlot.Reference(newValue)
            state.withLock { $0.audience.delegate = reference.delegate }
            delegateChanges.add(1, ordering: .releasing)
        }
    }

    /// The queue on which the delegate is called; nil: on the socket's event loop.
    ///
    /// Set it before the socket is used. Later, what is on its way to the old queue is still told there, and may be overtaken by what is told on the new one.
    public var delegateQueue: DispatchQueue? {
        get { state.withLock { $0.audience.queue } }
        set {
            let occupation = state.withLock { state in
                state.audience.queue = newValue
                return state.occupation
            }
            if case .connection(let connection) = occupation { connection.post(.changeDelegateQueue) }
        }
    }

    // MARK: - Inside

    /// The connection, while there is one or has been one.
    var connection: StreamConnection? {
        state.withLock { state in
            if case .connection(let connection) = state.occupation { connection } else { nil }
        }
    }

    /// The connection that is to read or write, if there is one. In an inline callback of it neither lock nor count is needed to find it.
    func withConnection(_ body: (StreamConnection) -> Void) {
        if !callback.withConnection(body), let connection { body(connection) }
    }

    /// Makes `occupation` the socket's, if it has none that is still going on.
    func occupy(_ operation: String, with occupation: Occupation) throws(AsyncSocketError) {
        let isFree = state.withLock { state in
            guard state.occupation.isOver else { return false }
            if case .connection(let old) = state.occupation {
                old.relay.supersede()
                if case .connection(let new) = occupation { new.predecessor = old }
            }
            state.occupation = occupation
            // Here, so that an option that is set from now on finds the connection, and one that was set before is not lost.
            if case .connection(let connection) = occupation {
                connection.settings = state.configuration
                connection.relay.callBack(on: state.audience.queue, unlessItIs: socketQueue)
                connection.facts.withLock { $0.options = state.options }
            }
            return true
        }
        if !isFree {
            throw .badConfiguration(operation, "the socket is connecting, connected or listening: disconnect it first")
        }
    }
}

extension AsyncSocket.Occupation {
    /// True when the socket may take up something else.
    fileprivate var isOver: Bool {
        switch self {
        case .nothing: true
        case .connection(let connection): connection.facts.withLock { $0.isOver }
        case .listening(let listener): !listener.isOpen
        }
    }

    func close() {
        switch self {
        case .nothing: break
        case .connection(let connection): connection.post(.close([]))
        case .listening(let listener): listener.close()
        }
    }
}

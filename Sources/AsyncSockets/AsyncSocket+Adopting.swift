public import Dispatch
internal import SocketCore

extension AsyncSocket {
    /// Creates a socket from the descriptor of an established connection: a TCP or Unix-domain stream
    /// (`init(fromConnectedSocketFD:)` of `GCDAsyncSocket`).
    ///
    /// The socket is connected immediately, without a callback, and you may read and write. You may call this
    /// on any thread or queue, including `socketQueue` and `delegateQueue`. On success, the socket owns the
    /// descriptor: it makes the descriptor non-blocking and close-on-exec, and closes it when the connection
    /// closes. No other code may use the descriptor or a duplicate (dup(2)) from then on. If this throws, the
    /// descriptor is unchanged and still yours.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - delegate: The object that receives the callbacks, held weakly.
    ///   - delegateQueue: See `init(delegate:delegateQueue:socketQueue:)`.
    ///   - socketQueue: See `init(delegate:delegateQueue:socketQueue:)`.
    /// - Throws: `.badParameter` with an `errno`: `EBADF` or `ENOTSOCK`, `ESOCKTNOSUPPORT` if the descriptor
    ///   is not a TCP or Unix-domain stream, `EAFNOSUPPORT` if its address family is not supported,
    ///   `ENOTCONN` if it is a listener or is not (or no longer) connected; `.system` if no event loop is
    ///   available.
    public convenience init<Delegate: AsyncSocketDelegate & SendableMetatype>(
        adopting descriptor: Int32, delegate: Delegate?, delegateQueue: DispatchQueue,
        socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(delegate: delegate, delegateQueue: delegateQueue, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    /// Creates a socket from the descriptor of an established connection and calls its delegate on the main
    /// queue: see `init(delegate:socketQueue:)`.
    ///
    /// - Throws: The errors of `init(adopting:delegate:delegateQueue:socketQueue:)`.
    @MainActor
    public convenience init(
        adopting descriptor: Int32, delegate: any AsyncSocketDelegate, socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(delegate: delegate, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    /// Creates a socket without a delegate from the descriptor of an established connection.
    ///
    /// - Parameter descriptor: A connected stream socket.
    /// - Throws: The errors of `init(adopting:delegate:delegateQueue:socketQueue:)`.
    public convenience init(adopting descriptor: Int32) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init()
        try adopt(descriptor, of: peer)
    }

    /// Creates a socket from the descriptor of an established connection and calls its delegate on the
    /// socket's event loop: see `init(inlineDelegate:socketQueue:)`.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - inlineDelegate: The object that receives the callbacks, held weakly.
    ///   - socketQueue: See `init(inlineDelegate:socketQueue:)`.
    /// - Throws: The errors of `init(adopting:delegate:delegateQueue:socketQueue:)`.
    public convenience init<Delegate: AsyncSocketDelegate & Sendable>(
        adopting descriptor: Int32, inlineDelegate: Delegate?, socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(inlineDelegate: inlineDelegate, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    private static func peer(of descriptor: Int32) throws(AsyncSocketError) -> SocketEndpoint {
        do throws(SystemError) {
            return try SocketDescriptor.peerOfConnectedStream(descriptor)
        } catch {
            throw AsyncSocketError(
                .badParameter, fault: .caller, operation: .adopt,
                message: "descriptor \(descriptor) is not a connected stream socket: \(error)",
                errno: error.errno)
        }
    }

    private func adopt(_ descriptor: Int32, of peer: SocketEndpoint) throws(AsyncSocketError) {
        let connection = try makeConnection(.adopt, as: .adopted)
        let adopted = SocketDescriptor(takingOver: descriptor)
        do throws(SystemError) {
            // A new socket has no stored options that the kernel could reject.
            try connection.record.introduce(adopted, peer: peer)
        } catch {
            adopted.relinquish()
            throw AsyncSocketError(error, operation: .adopt)
        }
        connection.post(.adopt(adopted))
    }
}

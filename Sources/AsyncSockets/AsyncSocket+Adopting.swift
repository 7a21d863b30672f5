public import Dispatch
internal import SocketCore

extension AsyncSocket {
    /// A socket for a connection that other code has made: a TCP or Unix-domain stream
    /// (`init(fromConnectedSocketFD:)` of `GCDAsyncSocket`).
    ///
    /// The socket is connected at once, without a callback; you may read and write. You may call this
    /// anywhere, on `socketQueue` and `delegateQueue` too. On success the descriptor belongs to the socket,
    /// which makes it non-blocking and close-on-exec and closes it when the connection ends: nothing else may
    /// use it any more, nor a copy of it (dup(2)). When this throws, the descriptor is left as it was.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - delegate: The object that gets the callbacks, held weakly.
    ///   - delegateQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    ///   - socketQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    /// - Throws: `.badParameter` with an errno: EBADF or ENOTSOCK, ESOCKTNOSUPPORT when it is not a TCP or
    ///   Unix-domain stream, EAFNOSUPPORT for another family, ENOTCONN when it listens or is not connected
    ///   (any more); `.system` when there is no event loop for it.
    public convenience init<Delegate: AsyncSocketDelegate & SendableMetatype>(
        adopting descriptor: Int32, delegate: Delegate?, delegateQueue: DispatchQueue,
        socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(delegate: delegate, delegateQueue: delegateQueue, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    /// A socket whose delegate is called on the main queue, for a connection that other code has made: see
    /// `init(delegate:socketQueue:)`.
    ///
    /// - Throws: What `init(adopting:delegate:delegateQueue:socketQueue:)` throws.
    @MainActor
    public convenience init(
        adopting descriptor: Int32, delegate: any AsyncSocketDelegate, socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(delegate: delegate, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    /// A socket without a delegate, for a connection that other code has made.
    ///
    /// - Parameter descriptor: A connected stream socket.
    /// - Throws: What `init(adopting:delegate:delegateQueue:socketQueue:)` throws.
    public convenience init(adopting descriptor: Int32) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init()
        try adopt(descriptor, of: peer)
    }

    /// A socket whose delegate is called on its event loop, for a connection that other code has made: see
    /// `init(inlineDelegate:socketQueue:)`.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - inlineDelegate: The object that gets the callbacks, held weakly.
    ///   - socketQueue: As for `init(inlineDelegate:socketQueue:)`.
    /// - Throws: What `init(adopting:delegate:delegateQueue:socketQueue:)` throws.
    public convenience init<Delegate: AsyncSocketDelegate & Sendable>(
        adopting descriptor: Int32, inlineDelegate: Delegate?, socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(inlineDelegate: inlineDelegate, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    private static func peer(of descriptor: Int32) throws(AsyncSocketError) -> SocketAddress {
        do throws(SystemError) {
            return try SocketDescriptor.peerOfConnectedStream(descriptor)
        } catch {
            throw AsyncSocketError(
                .badParameter, blame: .caller, operation: "adopt",
                message: "descriptor \(descriptor) is not a connected stream: \(error)",
                errno: error.errno)
        }
    }

    private func adopt(_ descriptor: Int32, of peer: SocketAddress) throws(AsyncSocketError) {
        let connection = try makeConnection("adopt", as: .adopted)
        let adopted = SocketDescriptor(takingOver: descriptor)
        do throws(SystemError) {
            // A new socket has no options that the kernel could refuse.
            try connection.record.introduce(adopted, peer: peer)
        } catch {
            adopted.relinquish()
            throw AsyncSocketError(error, operation: "adopt")
        }
        connection.post(.adopt(adopted))
    }
}

public import Dispatch
internal import SocketCore

extension AsyncSocket {
    /// A socket on a connection that someone else has made: a TCP or Unix-domain stream
    /// (`init(fromConnectedSocketFD:)` of `GCDAsyncSocket`).
    ///
    /// The socket is connected at once, and the delegate is not told so; reads and writes may begin. It may
    /// be called anywhere, on `socketQueue` and `delegateQueue` too. On success the descriptor belongs to the
    /// socket, which makes it non-blocking and close-on-exec and closes it when the connection ends: no one
    /// else may use it any more, a copy of it (dup(2)) included. When an error is thrown it is left as it
    /// was.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - delegate: Who is told what happens. It is held weakly.
    ///   - delegateQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    ///   - socketQueue: As for `init(delegate:delegateQueue:socketQueue:)`.
    /// - Throws: `.badParameter` with an errno: EBADF or ENOTSOCK, ESOCKTNOSUPPORT when it is no TCP or
    ///   Unix-domain stream, EAFNOSUPPORT for another family, ENOTCONN when it is listening or not connected
    ///   (any more); `.system` when there is no event loop for it.
    public convenience init(
        adopting descriptor: Int32, delegate: (any AsyncSocketDelegate)?, delegateQueue: DispatchQueue,
        socketQueue: DispatchQueue? = nil
    ) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init(delegate: delegate, delegateQueue: delegateQueue, socketQueue: socketQueue)
        try adopt(descriptor, of: peer)
    }

    /// The same for a socket that has no delegate yet.
    ///
    /// - Parameter descriptor: A connected stream socket.
    /// - Throws: What `init(adopting:delegate:delegateQueue:socketQueue:)` throws.
    public convenience init(adopting descriptor: Int32) throws(AsyncSocketError) {
        let peer = try Self.peer(of: descriptor)
        self.init()
        try adopt(descriptor, of: peer)
    }

    /// The same for a socket whose delegate is called on its event loop, as with
    /// `init(inlineDelegate:socketQueue:)`.
    ///
    /// - Parameters:
    ///   - descriptor: A connected stream socket.
    ///   - inlineDelegate: Who is told what happens. It is held weakly.
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
                message: "descriptor \(descriptor) is no connected stream: \(error)",
                errno: error.errno)
        }
    }

    private func adopt(_ descriptor: Int32, of peer: SocketAddress) throws(AsyncSocketError) {
        let connection = try makeConnection("adopt", as: .adopted)
        let adopted = SocketDescriptor(takingOver: descriptor)
        do throws(SystemError) {
            // A new socket has no options that could be refused.
            try connection.introduce(adopted, peer: peer)
        } catch {
            adopted.relinquish()
            throw AsyncSocketError(error, operation: "adopt")
        }
        connection.post(.adopt(adopted))
    }
}

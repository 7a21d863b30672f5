public import Dispatch
public import FoundationEssentials

/// The callbacks of a socket.
///
/// Every method is optional: the default does nothing. Put the conformance into an extension of its own, and
/// the compiler warns of a method whose name or types only nearly match. The methods are called on the queue
/// that you set with the delegate, in the order in which things happened; an inline delegate is called on the
/// socket's event loop (be quick there, and never block). No method is called from within a call that you
/// make to the socket.
///
/// The protocol is not `Sendable`: a delegate with a queue may have state without locks. A delegate on the
/// main actor has a conformance that is isolated to it, and is called on the main queue:
///
/// ```swift
/// @MainActor final class Session { … }
/// extension Session: @MainActor AsyncSocketDelegate { … }
/// let socket = AsyncSocket(delegate: session)
/// ```
public protocol AsyncSocketDelegate: AnyObject {
    // MARK: Connecting and accepting

    /// A listening socket has accepted a connection: keep `newSocket`, or it is closed at once.
    ///
    /// It has the listener's delegate and delegate queue; an inline delegate is called inline for it too. You
    /// may read and write right here.
    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket)

    /// Return the queue on which an accepted socket is to run; nil (the default): the event loops.
    func newSocketQueueForConnection(fromAddress address: SocketAddress, on socket: AsyncSocket) -> DispatchQueue?

    /// The connection is established. `host` is the peer's address in numbers; behind a proxy, the host that
    /// you asked for; for an abstract name of the Unix domain or a virtual machine, the description of the
    /// address, and the port is 0.
    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16)

    /// The connection to the Unix-domain socket at a path is established.
    func socket(_ socket: AsyncSocket, didConnectToPath path: String)

    /// A step on the way to a connection, for logs and progress displays.
    func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress)

    // MARK: Reading

    /// A read is complete. `data` never holds more than was asked for.
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int)

    /// A read of `readBytes(withTimeout:tag:)` is complete. `bytes` are valid until this returns: copy what
    /// you keep. There is at least one.
    func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int)

    /// A read has received `partialLength` more bytes and is not complete yet.
    func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag: Int)

    /// A read has ended incomplete.
    ///
    /// It timed out on a socket with `keepsConnectionOnReadTimeout`, or the peer had closed its side on one
    /// without `autoDisconnectOnClosedReadStream`: then the connection goes on. Or the stream broke off
    /// during a read to the end: then the end of the connection follows.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - tag: The tag of the read.
    ///   - data: The bytes that the read had so far; they will not be delivered again.
    ///   - error: `.readTimeout`, `.closedByPeer` or, for a read to the end, why the stream broke off.
    func socket(_ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError)

    /// A read has timed out. Return how many seconds it may go on for; zero or less (the default: zero) ends
    /// the connection or, with `keepsConnectionOnReadTimeout`, the read. `elapsed` is the time that it had:
    /// its timeout, and the extensions.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval

    /// The peer will send no more, and the connection stays open for writing.
    ///
    /// Called once, on a socket without `autoDisconnectOnClosedReadStream`, after the last byte has been
    /// delivered. Reads that are queued then or later end with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`.
    func socketDidCloseReadStream(_ socket: AsyncSocket)

    // MARK: Writing

    /// A write is complete: the kernel has all its bytes. That does not mean that the peer has them.
    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int)

    /// `partialLength` more bytes of a write were handed to the kernel, and some are left.
    func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int)

    /// A write has timed out. Return how many seconds it may go on for; zero or less (the default: zero) ends
    /// the connection. `elapsed` is the time that it had: its timeout, and the extensions.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval

    /// The bytes waiting to be written have reached `writeHighWaterMark`: stop writing until some writes are
    /// complete.
    ///
    /// Called again after `socket(_:writeQueueReachedLowWater:)`.
    func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int)

    /// After the high-water mark was reached, no more than half of `writeHighWaterMark` waits to be written:
    /// go on writing.
    func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int)

    // MARK: TLS

    /// Decide whether to trust the peer. Called at most once for a connection (and for each request of
    /// `beginClientCertificateRequest(isRequired:)`), and only when the settings'
    /// `trustEvaluation` asks for it.
    ///
    /// Answer by calling `completionHandler` once, from any thread, now or later, within `trustTimeout`
    /// seconds; later answers and second ones are ignored. Meanwhile no application data moves in either
    /// direction. With `.delegate`, OpenSSL has already accepted the peer, and you can only refuse it; with
    /// `.manual` yours is the only verdict. The default refuses.
    ///
    /// On the client side it comes before the peer has proved that it holds the certificate's key: store a
    /// pin in `socketDidSecure`.
    func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void)

    /// The connection is secure: everything read and written from here on is encrypted. See `tlsSession`.
    func socketDidSecure(_ socket: AsyncSocket)

    /// A request of `beginClientCertificateRequest(isRequired:)` is over.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - result: The updated session, or the reason why the client could not be asked; then the connection
    ///     is as it was. If the answer is refused or does not come, the end of the connection follows
    ///     instead.
    func socket(_ socket: AsyncSocket, didRequestClientCertificate result: Result<TLSSession, AsyncSocketError>)

    // MARK: The end

    /// The connection, the attempt to connect, or the listener has ended. Called once for each, as its last
    /// callback.
    ///
    /// `error` is nil after `disconnect()` and the like. When the peer closed in good order it is
    /// `.closedByPeer`, which is an error here because you did not ask for it. Reads and writes that were
    /// still queued are dropped. For a listener, `error` is set if the kernel refuses to accept: see
    /// `SocketListener.run`.
    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?)

    /// The same in the spelling of CocoaAsyncSocket, for a delegate that was written for it. Implement one of
    /// the two: both are called.
    func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?)
}

// The defaults that make every method optional.
extension AsyncSocketDelegate {
    /// Releases `newSocket`, which closes it.
    public func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {}
    /// Returns nil: the event loops.
    public func newSocketQueueForConnection(fromAddress address: SocketAddress, on socket: AsyncSocket) -> DispatchQueue? { nil }
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didConnectToPath path: String) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag: Int) {}
    /// Does nothing.
    public func socket(
        _ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError
    ) {}
    /// Returns zero.
    public func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval { 0 }
    /// Does nothing.
    public func socketDidCloseReadStream(_ socket: AsyncSocket) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int) {}
    /// Returns zero.
    public func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval { 0 }
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int) {}
    /// Refuses the peer.
    public func socket(
        _ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) { completionHandler(false) }
    /// Does nothing.
    public func socketDidSecure(_ socket: AsyncSocket) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didRequestClientCertificate result: Result<TLSSession, AsyncSocketError>) {}
    /// Does nothing.
    public func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {}
    /// Does nothing.
    public func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?) {}
}

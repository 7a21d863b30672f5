public import Dispatch
public import FoundationEssentials

/// The callbacks of a socket.
///
/// Every method is optional, with a default implementation. Declare the conformance in a separate extension,
/// and the compiler warns about methods that nearly match a requirement in name or types. The methods are
/// called in the order of the events, on the queue that you set together with the delegate. An inline
/// delegate is called on the socket's event loop: return quickly there, and never block. A delegate method is
/// never called from within your own call to the socket.
///
/// The protocol is not `Sendable`, so a delegate that is called on a queue may have mutable state without
/// locks. A delegate on the main actor declares an isolated conformance and is called on the main queue:
///
/// ```swift
/// @MainActor final class Session { … }
/// extension Session: @MainActor AsyncSocketDelegate { … }
/// let socket = AsyncSocket(delegate: session)
/// ```
public protocol AsyncSocketDelegate: AnyObject {
    // MARK: Connecting and accepting

    /// Called when a listening socket has accepted a connection. Keep `newSocket`, or the connection closes
    /// immediately.
    ///
    /// The new socket has the listener's delegate and delegate queue. An inline delegate is called inline for
    /// the new socket too. You may read and write in this callback.
    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket)

    /// Returns the queue on which an accepted socket runs, or `nil` (the default) to run it on an event loop.
    func newSocketQueueForConnection(fromAddress address: SocketEndpoint, on socket: AsyncSocket) -> DispatchQueue?

    /// Called when the connection is established. `host` is the numeric address of the peer or, with a proxy,
    /// the host you connected to. For an abstract Unix-domain name or a virtual machine, `host` is the
    /// description of the address, and the port is 0.
    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16)

    /// Called when the connection to the Unix-domain socket at a path is established.
    func socket(_ socket: AsyncSocket, didConnectToPath path: String)

    /// Called at each step of establishing a connection, for logs and progress displays.
    func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress)

    // MARK: Reading

    /// Called when a read is complete. `data` never contains more than the read requested.
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int)

    /// Called when a read requested with `readBytes(withTimeout:tag:)` is complete. `bytes` is never empty
    /// and is valid only until this method returns: copy any bytes that you need later.
    func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int)

    /// Called when a read has received `partialLength` more bytes but is not yet complete.
    func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag: Int)

    /// Called when a read has failed without failing the connection, or when the stream broke off during a
    /// read to the end.
    ///
    /// In the first case, the read timed out on a socket with `keepsConnectionOnReadTimeout`, or the peer had
    /// closed its side on a socket without `autoDisconnectOnClosedReadStream`. The connection then stays
    /// open. In the second case, `socketDidDisconnect(_:withError:)` follows.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - tag: The tag of the read.
    ///   - data: The bytes that the read had received. They are not delivered again.
    ///   - error: `.readTimeout`, `.closedByPeer` or, for a read to the end, the reason why the stream broke
    ///     off.
    func socket(_ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError)

    /// Called when a read has timed out. Return the number of seconds by which to extend it. If the result is
    /// zero or less (the default is zero), the connection closes or, with `keepsConnectionOnReadTimeout`,
    /// only the read fails. `elapsed` is the total time allowed so far: the timeout plus all extensions.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval

    /// Called when the peer will send no more data and the connection stays open for writing.
    ///
    /// Called once, after the last byte has been delivered, on a socket without
    /// `autoDisconnectOnClosedReadStream`. Reads that are queued then or later fail with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`.
    func socketDidCloseReadStream(_ socket: AsyncSocket)

    // MARK: Writing

    /// Called when a write is complete: the kernel has accepted all its bytes. The peer may not have received
    /// them yet.
    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int)

    /// Called when `partialLength` more bytes of a write were passed to the kernel and the write is not yet
    /// complete.
    func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int)

    /// Called when a write has timed out. Return the number of seconds by which to extend it. If the result
    /// is zero or less (the default is zero), the connection closes. `elapsed` is the total time allowed so
    /// far: the timeout plus all extensions.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval

    /// Called when the number of queued bytes has reached `writeHighWaterMark`. Stop writing until some
    /// writes are complete.
    ///
    /// Called again only after `socket(_:writeQueueReachedLowWater:)`.
    func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int)

    /// Called when the write queue, after reaching the high-water mark, has shrunk to at most half of
    /// `writeHighWaterMark`. Continue writing.
    func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int)

    // MARK: TLS

    /// Called to decide whether to trust the peer. Called at most once for a connection (and once for each
    /// request made with `beginClientCertificateRequest(isRequired:)`), and only if `trustEvaluation` in the
    /// settings requires it.
    ///
    /// Call `completionHandler` once with the decision, from any thread, within `trustTimeout`. Late
    /// or repeated calls are ignored. Until then, no application data is transferred in either direction.
    /// With `.delegate`, OpenSSL has already accepted the peer, and you can only reject it. With `.manual`,
    /// your decision is the only check. The default implementation rejects the peer.
    ///
    /// On the client side, this is called before the peer has proved that it holds the certificate's private
    /// key. If you store a pin, do so in `socketDidSecure`.
    func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void)

    /// Called when the connection is secure: everything read and written from now on is encrypted. See
    /// `tlsSession`.
    func socketDidSecure(_ socket: AsyncSocket)

    /// Called when a request made with `beginClientCertificateRequest(isRequired:)` is complete.
    ///
    /// - Parameters:
    ///   - socket: The socket.
    ///   - result: The updated session, or the reason why the certificate could not be requested, in which
    ///     case the connection is unchanged. If the client's response is rejected or never arrives, this
    ///     method is not called, and `socketDidDisconnect(_:withError:)` follows instead.
    func socket(_ socket: AsyncSocket, didReceiveClientCertificate result: Result<TLSSession, AsyncSocketError>)

    // MARK: Closing

    /// Called when the connection, the connection attempt or the listener has closed. Called once for each,
    /// as the last callback.
    ///
    /// `error` is `nil` after `disconnect()` and its variants. If the peer closed the connection in an
    /// orderly way, `error` is `.closedByPeer`: this is an error here because you did not request it. Reads
    /// and writes that were still queued are dropped. For a listener, `error` is set if accepting connections
    /// has failed permanently: see `SocketListener.run`.
    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?)

    /// The same callback in the spelling of CocoaAsyncSocket, for delegates written for that library.
    /// Implement only one of the two methods, because both are called.
    func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?)
}

// The defaults that make every method optional.
extension AsyncSocketDelegate {
    /// Releases `newSocket`, which closes it.
    public func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {}
    /// Returns `nil`, which selects an event loop.
    public func newSocketQueueForConnection(fromAddress address: SocketEndpoint, on socket: AsyncSocket) -> DispatchQueue? { nil }
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
    /// Rejects the peer.
    public func socket(
        _ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) { completionHandler(false) }
    /// Does nothing.
    public func socketDidSecure(_ socket: AsyncSocket) {}
    /// Does nothing.
    public func socket(_ socket: AsyncSocket, didReceiveClientCertificate result: Result<TLSSession, AsyncSocketError>) {}
    /// Does nothing.
    public func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {}
    /// Does nothing.
    public func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?) {}
}

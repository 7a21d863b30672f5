public import Foundation

// Default implementations, which make every delegate method optional.
extension GCDAsyncSocketDelegate {
    /// Returns the result of the older spelling.
    public func newSocketQueueForConnection(fromAddress address: Data, on sock: GCDAsyncSocket) -> DispatchQueue? {
        newSocketQueueForConnection(fromAddress: Optional(address), on: sock)
    }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        socket(Optional(sock), didAcceptNewSocket: newSocket)
    }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        socket(Optional(sock), didConnectToHost: host, port: port)
    }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didConnectTo url: URL) { socket(Optional(sock), didConnectTo: url) }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        socket(Optional(sock), didRead: data, withTag: tag)
    }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didReadPartialDataOfLength partialLength: UInt, tag: Int) {
        socket(Optional(sock), didReadPartialDataOfLength: partialLength, tag: tag)
    }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didWriteDataWithTag tag: Int) { socket(Optional(sock), didWriteDataWithTag: tag) }
    /// Calls the older spelling.
    public func socket(_ sock: GCDAsyncSocket, didWritePartialDataOfLength partialLength: UInt, tag: Int) {
        socket(Optional(sock), didWritePartialDataOfLength: partialLength, tag: tag)
    }
    /// Returns the result of the older spelling.
    public func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval { socket(Optional(sock), shouldTimeoutReadWithTag: tag, elapsed: elapsed, bytesDone: length) }
    /// Returns the result of the older spelling.
    public func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval { socket(Optional(sock), shouldTimeoutWriteWithTag: tag, elapsed: elapsed, bytesDone: length) }
    /// Calls the older spelling.
    public func socketDidCloseReadStream(_ sock: GCDAsyncSocket) { socketDidCloseReadStream(Optional(sock)) }
    /// Calls the older spelling.
    public func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: (any Error)?) {
        socketDidDisconnect(Optional(sock), withError: err)
    }
    /// Calls the older spelling.
    public func socketDidSecure(_ sock: GCDAsyncSocket) { socketDidSecure(Optional(sock)) }
    /// Calls the asynchronous method, which rejects the peer by default.
    public func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) {
        sock.ask(self, about: trust, completionHandler)
    }
    /// Rejects the peer, because the delegate implements neither of the methods that evaluate a peer. The
    /// connection closes with an error that explains this.
    public func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust) async -> Bool {
        sock.refuseUnaskedTrust()
        return false
    }
}

// Default implementations of the older spellings.
extension GCDAsyncSocketDelegate {
    /// Returns `nil`, so that the socket runs on the library's own threads.
    public func newSocketQueueForConnection(fromAddress address: Data!, on sock: GCDAsyncSocket!) -> DispatchQueue? { nil }
    /// Releases `newSocket`, which closes it.
    public func socket(_ sock: GCDAsyncSocket!, didAcceptNewSocket newSocket: GCDAsyncSocket!) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didConnectToHost host: String!, port: UInt16) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didConnectTo url: URL!) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didRead data: Data!, withTag tag: Int) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didReadPartialDataOfLength partialLength: UInt, tag: Int) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didWriteDataWithTag tag: Int) {}
    /// Ignores the event.
    public func socket(_ sock: GCDAsyncSocket!, didWritePartialDataOfLength partialLength: UInt, tag: Int) {}
    /// Returns zero, so that the connection closes.
    public func socket(_ sock: GCDAsyncSocket!, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    { 0 }
    /// Returns zero, so that the connection closes.
    public func socket(_ sock: GCDAsyncSocket!, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    { 0 }
    /// Ignores the event.
    public func socketDidCloseReadStream(_ sock: GCDAsyncSocket!) {}
    /// Ignores the event.
    public func socketDidDisconnect(_ sock: GCDAsyncSocket!, withError err: (any Error)!) {}
    /// Ignores the event.
    public func socketDidSecure(_ sock: GCDAsyncSocket!) {}
}

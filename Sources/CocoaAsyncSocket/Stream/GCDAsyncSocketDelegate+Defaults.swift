public import Foundation

// The defaults that make every method of the delegate optional.
extension GCDAsyncSocketDelegate {
    /// Asks the older spelling.
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
    /// Asks the older spelling.
    public func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval { socket(Optional(sock), shouldTimeoutReadWithTag: tag, elapsed: elapsed, bytesDone: length) }
    /// Asks the older spelling.
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
    /// Asks the asynchronous method, which refuses by default.
    public func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) {
        sock.ask(self, about: trust, completionHandler)
    }
    /// Refuses: the delegate has neither of the two methods. The end of the connection says so.
    public func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust) async -> Bool {
        sock.refuseUnaskedTrust()
        return false
    }
}

// The defaults of the older spellings.
extension GCDAsyncSocketDelegate {
    /// Returns nil: the library's own threads.
    public func newSocketQueueForConnection(fromAddress address: Data!, on sock: GCDAsyncSocket!) -> DispatchQueue? { nil }
    /// Releases `newSocket`, which closes it.
    public func socket(_ sock: GCDAsyncSocket!, didAcceptNewSocket newSocket: GCDAsyncSocket!) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didConnectToHost host: String!, port: UInt16) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didConnectTo url: URL!) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didRead data: Data!, withTag tag: Int) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didReadPartialDataOfLength partialLength: UInt, tag: Int) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didWriteDataWithTag tag: Int) {}
    /// Does nothing.
    public func socket(_ sock: GCDAsyncSocket!, didWritePartialDataOfLength partialLength: UInt, tag: Int) {}
    /// Returns zero: the connection ends.
    public func socket(_ sock: GCDAsyncSocket!, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    { 0 }
    /// Returns zero: the connection ends.
    public func socket(_ sock: GCDAsyncSocket!, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    { 0 }
    /// Does nothing.
    public func socketDidCloseReadStream(_ sock: GCDAsyncSocket!) {}
    /// Does nothing.
    public func socketDidDisconnect(_ sock: GCDAsyncSocket!, withError err: (any Error)!) {}
    /// Does nothing.
    public func socketDidSecure(_ sock: GCDAsyncSocket!) {}
}

public import Foundation

// Default implementations, which make every delegate method optional.
extension GCDAsyncUdpSocketDelegate {
    /// Calls the older spelling.
    public func udpSocket(_ sock: GCDAsyncUdpSocket, didConnectToAddress address: Data) {
        udpSocket(Optional(sock), didConnectToAddress: address)
    }
    /// Calls the older spelling.
    public func udpSocket(_ sock: GCDAsyncUdpSocket, didNotConnect error: (any Error)?) {
        udpSocket(Optional(sock), didNotConnect: error)
    }
    /// Calls the older spelling.
    public func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int) {
        udpSocket(Optional(sock), didSendDataWithTag: tag)
    }
    /// Calls the older spelling.
    public func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: (any Error)?) {
        udpSocket(Optional(sock), didNotSendDataWithTag: tag, dueToError: error)
    }
    /// Calls the older spelling.
    public func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?
    ) { udpSocket(Optional(sock), didReceive: data, fromAddress: address, withFilterContext: filterContext) }
    /// Calls the older spelling.
    public func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: (any Error)?) {
        udpSocketDidClose(Optional(sock), withError: error)
    }
}

// Default implementations of the older spellings.
extension GCDAsyncUdpSocketDelegate {
    /// Ignores the event.
    public func udpSocket(_ sock: GCDAsyncUdpSocket!, didConnectToAddress address: Data!) {}
    /// Ignores the event.
    public func udpSocket(_ sock: GCDAsyncUdpSocket!, didNotConnect error: (any Error)!) {}
    /// Ignores the event.
    public func udpSocket(_ sock: GCDAsyncUdpSocket!, didSendDataWithTag tag: Int) {}
    /// Ignores the event.
    public func udpSocket(_ sock: GCDAsyncUdpSocket!, didNotSendDataWithTag tag: Int, dueToError error: (any Error)!) {}
    /// Ignores the event.
    public func udpSocket(
        _ sock: GCDAsyncUdpSocket!, didReceive data: Data!, fromAddress address: Data!, withFilterContext filterContext: Any!
    ) {}
    /// Ignores the event.
    public func udpSocketDidClose(_ sock: GCDAsyncUdpSocket!, withError error: (any Error)!) {}
}

public import Foundation

extension GCDAsyncSocket {
    /// A socket without a delegate, with a queue of its own.
    public convenience init(socketQueue sq: DispatchQueue?) {
        self.init(delegate: nil, delegateQueue: nil, socketQueue: sq)
    }

    /// A socket with a delegate and the queue on which it is called.
    public convenience init(delegate aDelegate: (any GCDAsyncSocketDelegate)?, delegateQueue dq: DispatchQueue?) {
        self.init(delegate: aDelegate, delegateQueue: dq, socketQueue: nil)
    }

    /// A socket for a connection that other code has made, without a delegate.
    public convenience init(fromConnectedSocketFD socketFD: Int32, socketQueue sq: DispatchQueue?) throws {
        try self.init(fromConnectedSocketFD: socketFD, delegate: nil, delegateQueue: nil, socketQueue: sq)
    }

    /// A socket for a connection that other code has made.
    public convenience init(
        fromConnectedSocketFD socketFD: Int32, delegate aDelegate: (any GCDAsyncSocketDelegate)?,
        delegateQueue dq: DispatchQueue?
    ) throws {
        try self.init(fromConnectedSocketFD: socketFD, delegate: aDelegate, delegateQueue: dq, socketQueue: nil)
    }

    /// A socket for a connection that other code has made: a TCP or Unix-domain stream.
    ///
    /// The descriptor belongs to the socket from then on; when this throws, it is left as it was.
    public convenience init(
        fromConnectedSocketFD socketFD: Int32, delegate aDelegate: (any GCDAsyncSocketDelegate)?,
        delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) throws {
        self.init(delegate: aDelegate, delegateQueue: dq, socketQueue: sq)
        try adopt(socketFD, socketQueue: sq)
    }

    /// Another spelling of `markQueueTargetQueue(_:)`.
    public func markSocketQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        markQueueTargetQueue(socketQueuesPreConfiguredTargetQueue)
    }
}

public import Foundation

extension GCDAsyncSocket {
    /// Creates a socket without a delegate, with a queue on which the socket runs.
    public convenience init(socketQueue sq: DispatchQueue?) {
        self.init(delegate: nil, delegateQueue: nil, socketQueue: sq)
    }

    /// Creates a socket with a delegate and the queue on which the delegate is called.
    public convenience init(delegate aDelegate: (any GCDAsyncSocketDelegate)?, delegateQueue dq: DispatchQueue?) {
        self.init(delegate: aDelegate, delegateQueue: dq, socketQueue: nil)
    }

    /// Creates a socket without a delegate for an existing connection. See
    /// `init(fromConnectedSocketFD:delegate:delegateQueue:socketQueue:)`.
    public convenience init(fromConnectedSocketFD socketFD: Int32, socketQueue sq: DispatchQueue?) throws {
        try self.init(fromConnectedSocketFD: socketFD, delegate: nil, delegateQueue: nil, socketQueue: sq)
    }

    /// Creates a socket for an existing connection. See
    /// `init(fromConnectedSocketFD:delegate:delegateQueue:socketQueue:)`.
    public convenience init(
        fromConnectedSocketFD socketFD: Int32, delegate aDelegate: (any GCDAsyncSocketDelegate)?,
        delegateQueue dq: DispatchQueue?
    ) throws {
        try self.init(fromConnectedSocketFD: socketFD, delegate: aDelegate, delegateQueue: dq, socketQueue: nil)
    }

    /// Creates a socket for a connection that other code established: a TCP or Unix-domain stream.
    ///
    /// The socket takes ownership of the descriptor. If the initializer throws, the descriptor is unchanged
    /// and still belongs to the caller.
    public convenience init(
        fromConnectedSocketFD socketFD: Int32, delegate aDelegate: (any GCDAsyncSocketDelegate)?,
        delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) throws {
        self.init(delegate: aDelegate, delegateQueue: dq, socketQueue: sq)
        try adopt(socketFD, socketQueue: sq)
    }

    /// Marks a queue. An alternative spelling of `markQueueTargetQueue(_:)`.
    public func markSocketQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        markQueueTargetQueue(socketQueuesPreConfiguredTargetQueue)
    }
}

internal import SocketCore
internal import SocketTLS

/// What can be asked of a connection.
enum ConnectionMessage: Sendable {
    indirect case connect(Destination, timeout: Double, waiter: (any OperationWaiter<Void>)? = nil)
    case predecessorIsClosed
    case predecessorHasEnded
    indirect case resolved(Resolver.Answer)
    case attempt(Int, LoopEvents)
    case adopt(SocketDescriptor)
    case events(LoopEvents)
    case read(ReadPacket)
    case write(WritePacket)
    indirect case startTLS(TLSRequest)
    indirect case requestClient(ClientCertificateRequest)
    case verdict(Bool, of: TrustQuestionNumber)
    /// The verdict of a waiter, which waits on.
    indirect case verdictOf(any OperationWaiter<HandshakeNews>, Bool, of: TrustQuestionNumber)
    /// The settings for a client.
    indirect case chosen(TLSServerChoice)
    /// A step of the handshake is done.
    case worked(HandshakeWork)
    /// The turn in which the handshake was complete is over.
    case sendTickets
    indirect case awaitEnd(any OperationWaiter<Void>)
    case extendRead(operation: UInt32, seconds: Double)
    case extendWrite(operation: UInt32, seconds: Double)
    indirect case cancel(any AnyObject & Sendable)
    case close(CloseIntent)
    case closeWriteStream
    case configure(SocketConfiguration.Shared)
    case changeDelegateQueue
    indirect case fail(AsyncSocketError)
    indirect case perform(@Sendable (Int32?) -> Void)
    case retire
}

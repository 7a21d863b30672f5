internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

enum ConnectionMessage: Sendable {
    indirect case connect(Destination, timeout: Double, waiter: (any OperationWaiter<Void>)? = nil)
    case predecessorIsClosed
    case predecessorHasEnded
    case establishing(EstablishingNews)
    case adopt(SocketDescriptor)
    case events(LoopEvents)
    case read(ReadPacket)
    case write(WritePacket)
    indirect case startTLS(TLSRequest)
    indirect case requestClient(ClientCertificateRequest)
    case upgrading(UpgradeNews)
    indirect case awaitEnd(any OperationWaiter<Void>)
    case extendRead(operation: UInt32, seconds: Double)
    case extendWrite(operation: UInt32, seconds: Double)
    indirect case cancel(any AnyObject & Sendable)
    case close(CloseIntent)
    case closeWriteStream
    case flush
    case configure(SocketConfiguration.Shared)
    case changeDelegateQueue
    case fail(AsyncSocketError)
    case giveWay(AsyncSocketError)
    indirect case perform(@Sendable (Int32?) -> Void)
    case retire

    /// Completes the message's waiter, if any, with an error.
    func refuse(_ error: AsyncSocketError) {
        switch self {
        case .connect(_, _, let waiter): waiter?.complete(.failure(error))
        case .read(let packet): packet.completion.refuse(error)
        case .write(let packet): packet.completion.refuse(error)
        case .startTLS(let request): request.waiter?.complete(.failure(error))
        case .requestClient(let request): request.waiter?.complete(.failure(error))
        case .upgrading(.awaited(let waiter)): waiter.complete(.failure(error))
        case .awaitEnd(let waiter): waiter.complete(.failure(error))
        case .predecessorIsClosed, .predecessorHasEnded, .establishing, .adopt, .events, .upgrading, .extendRead,
            .extendWrite, .cancel, .close, .closeWriteStream, .flush, .configure, .changeDelegateQueue, .fail, .giveWay,
            .perform, .retire:
            break
        }
    }
}

/// Progress of a connection that is being established.
enum EstablishingNews: Sendable {
    indirect case resolved(Resolver.Answer)
    case attempt(Int, LoopEvents)
}

/// The interface of a connection for its parts. Used inside the turn, except for `post(_:)`.
protocol PartOwner: ConnectionOwner, HandshakeOwner {
    /// Sends a message to the connection. Callable from any thread.
    func post(_ message: ConnectionMessage)
    func watch(_ descriptor: SocketDescriptor) throws(SystemError)
    var events: EventOutbox<DelegateEvent> { get }
    /// The state that callers can read.
    var record: Locked<ConnectionRecord> { get }
}

extension PartOwner {
    static var upgradeOperation: AsyncSocketError.Operation { .startTLS }

    var newsSender: @Sendable (UpgradeNews) -> Void {
        { [weak self] in self?.post(.upgrading($0)) }
    }

    func publish(_ session: CopyOnWrite<TLSSession>?, _ exporter: KeyExporter) {
        record.withLock { record in
            record.snapshot.isSecure = true
            record.live.descriptor?.keepPlace()
            record.snapshot.session = session
            record.snapshot.exporter = exporter
        }
    }

    func deliverSecured() { events.append(.didSecure) }

    func deliver(_ trust: PeerTrust, _ decide: @escaping @Sendable (Bool) -> Void) {
        events.append(.didReceiveTrust(trust, answer: decide))
    }
}

extension Completion {
    /// Completes an operation that was dropped or never accepted. A delegate is notified only that the
    /// connection closed.
    func refuse(_ error: @autoclosure () -> any Error) {
        if case .waiter(let waiter) = self { waiter.complete(.failure(error())) }
    }
}

// MARK: - Giving way

extension PartOwner {
    /// Called in the turn. Returns `false` if the peer has proved itself in the meantime.
    func mustGiveWay() -> Bool {
        record.withLock { record in
            if record.isUnproven { return true }
            record.live.descriptor?.keepPlace()
            return false
        }
    }

    func giveWay() -> Bool { giveWay(.gaveWayToConnection) }

    func giveWay(_ error: AsyncSocketError) -> Bool {
        guard record.withLock({ $0.isUnproven }) else { return false }
        post(.giveWay(error))
        return true
    }
}

extension AsyncSocketError {
    fileprivate static var gaveWayToConnection: AsyncSocketError {
        AsyncSocketError(
            .tooManyConnections, fault: .peer, operation: .accept,
            message: "a new connection replaced this one, which has exchanged no data or has not completed TLS, "
                + "because the listener reached maximumConnections")
    }

    static var gaveWayToHandshake: AsyncSocketError {
        AsyncSocketError(
            .tooManyHandshakes, fault: .peer, operation: .startTLS,
            message: "a new client replaced this handshake because the listener reached maximumHandshakes")
    }
}

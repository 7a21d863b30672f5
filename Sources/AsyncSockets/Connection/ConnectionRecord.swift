internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The facts of a connection that every thread may use at any time, behind one lock.
struct ConnectionRecord {
    var snapshot = ConnectionSnapshot()
    var claims = CallerClaims()
    var live = LiveDescriptor()

    /// Closed, or never to be connected, or given up by `disconnect()`: the socket may be used again.
    var isOver: Bool { snapshot.isClosed || claims.isDisconnected }
    /// True while a connection is established that the caller has not given up.
    var isConnected: Bool { snapshot.isEstablished && !isOver }
    /// The local address, once the peer's is known.
    var localAddress: SocketAddress? { live.remoteAddress == nil ? nil : live.localAddress }

    /// The connection has ended. Release the descriptor outside of the lock: what goes with the last
    /// reference takes locks of its own.
    mutating func close() -> SocketDescriptor? {
        snapshot.isClosed = true
        return live.withdraw()
    }
}

/// The facts of a connection, written inside its turn for callers. Nothing inside the turn reads them.
struct ConnectionSnapshot {
    var isEstablished = false
    var isClosed = false
    var isSecure = false
    /// Nil when nothing went with the connection.
    var loss: CopyOnWrite<ConnectionLoss>?
    var session: CopyOnWrite<TLSSession>?
    /// Answers for as long as the channel has its engine. For callers, who do not enter the turn.
    var exporter: KeyExporter?
}

/// The requests of callers: written on their own threads, before the message reaches the connection.
struct CallerClaims {
    /// `disconnect()` was called.
    var isDisconnected = false
    /// The intents of `disconnectAfter…` calls, or empty after `disconnect()`: nothing new is accepted.
    /// Nil: none was called.
    var closing: CloseIntent?
    /// `closeWriteStream()` was called.
    var isWriteStreamClosing = false
    /// The host that the caller connects to; nil for a path and for an accepted connection.
    var host: String?
    /// The host and port; nil when a descriptor was taken over.
    var endpoint: CopyOnWrite<String>?
    /// `startTLS` was called: a connection allows that once.
    var isUpgradeClaimed = false

    mutating func close(_ intent: CloseIntent) {
        guard !isDisconnected else { return }
        isDisconnected = intent.isAtOnce
        closing = isDisconnected ? intent : intent.union(closing ?? [])
    }
}

/// Whether TLS may begin on a connection.
enum UpgradeClaim {
    case granted
    /// The connection has ended.
    case over
    /// The caller closes it, or our side of it alone (nil).
    case closing(CloseIntent?)
    /// TLS was begun before.
    case repeated
}

extension ConnectionRecord {
    mutating func claimUpgrade() -> UpgradeClaim {
        if claims.closing != nil || claims.isWriteStreamClosing { return .closing(claims.closing) }
        if isOver { return .over }
        if claims.isUpgradeClaimed { return .repeated }
        claims.isUpgradeClaimed = true
        return .granted
    }
}

extension Locked<ConnectionRecord> {
    /// The peer's address, once it is known.
    var remoteAddress: SocketAddress? { withLock { $0.live.remoteAddress } }

    /// Publishes the facts of a connected descriptor, and the descriptor itself for options.
    func introduce(_ descriptor: SocketDescriptor, peer: SocketAddress?) throws(SystemError) {
        try withLock { record throws(SystemError) in
            guard !record.isOver else { return }
            try record.live.adopt(descriptor)
            guard let peer else { return }
            record.snapshot.isEstablished = true
            record.live.remoteAddress = peer
        }
    }

    /// The same for one that was connected, whose address may be known; an error when the kernel refuses an
    /// option that was set meanwhile.
    func introduce(connected descriptor: SocketDescriptor, to peer: SocketAddress?) -> AsyncSocketError? {
        // An accepted one is known already.
        if withLock({ $0.snapshot.isEstablished && $0.live.isSettled(descriptor) }) { return nil }
        do throws(SystemError) {
            try introduce(descriptor, peer: remoteAddress ?? peer)
            return nil
        } catch {
            return AsyncSocketError(error, operation: "connect")
        }
    }

    /// The same for an accepted descriptor. It has only the options that the kernel passes on; the others are
    /// set now.
    func introduce(_ accepted: AcceptedConnection) throws(AsyncSocketError) {
        do throws(SystemError) {
            withLock { $0.live.lateOptions = $0.live.options.notInherited(by: accepted.descriptor) }
            try introduce(accepted.descriptor, peer: accepted.peer)
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }
}

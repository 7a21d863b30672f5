internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The state of a connection that any thread may access at any time, protected by one lock.
struct ConnectionRecord {
    var snapshot = ConnectionSnapshot()
    var claims = CallerClaims()
    var live = LiveDescriptor()

    /// Whether the connection is closed, could not be established, or was abandoned with `disconnect()`. The
    /// socket can then be reused.
    var isOver: Bool { snapshot.isClosed || claims.isDisconnected }
    var isConnected: Bool { snapshot.isEstablished && !isOver }
    /// The local address, or `nil` until the peer's address is known.
    var localAddress: SocketEndpoint? { live.remoteAddress == nil ? nil : live.localAddress }

    /// Whether an accepted connection is unproven: its TLS handshake is incomplete or, without TLS, no data
    /// has been exchanged.
    var isUnproven: Bool {
        if isOver || snapshot.isSecure { return false }
        return claims.isUpgradeClaimed || claims.awaitsTLS || live.descriptor?.hasCarriedData == false
    }

    /// Marks the connection as closed and returns the descriptor. Release the descriptor outside the lock,
    /// because its deinitialization takes other locks.
    ///
    /// An accepted connection may be reset before it has a channel, so the descriptor is prepared here.
    mutating func close(withReset: Bool) -> SocketDescriptor? {
        snapshot.isClosed = true
        let descriptor = live.withdraw()
        if withReset { try? descriptor?.set(.linger, to: .zero) }
        return descriptor
    }
}

/// State that is written inside the turn for callers, and never read inside the turn.
struct ConnectionSnapshot {
    var isEstablished = false
    var isClosed = false
    /// Whether the connection is closed and `loss` is final.
    private(set) var hasEnded = false
    var isSecure = false
    /// `nil` if no data was lost in the close.
    private(set) var loss: CopyOnWrite<ConnectionLoss>?
    var session: CopyOnWrite<TLSSession>?
    /// Usable as long as the channel keeps its engine. Callers use it without entering the turn.
    var exporter: KeyExporter?

    mutating func end(losing loss: ConnectionLoss?) {
        self.loss = loss.map(CopyOnWrite.init)
        hasEnded = true
    }
}

/// Requests by callers, recorded on their own threads before the message reaches the connection.
struct CallerClaims {
    var isDisconnected = false
    /// The combined intents of the `disconnectAfter…` calls, empty after `disconnect()`, or `nil` before
    /// any of these calls. If it is set, no new operations are accepted.
    var closing: CloseIntent?
    var isWriteStreamClosing = false
    /// The host that the caller connects to. `nil` for a path and for an accepted connection.
    var host: String?
    /// The host and port. `nil` if a descriptor was adopted.
    var endpoint: CopyOnWrite<String>?
    /// Whether `startTLS` was called. A connection can be upgraded only once.
    var isUpgradeClaimed = false
    /// Whether the listener will start TLS.
    var awaitsTLS = false

    mutating func close(_ intent: CloseIntent) {
        guard !isDisconnected else { return }
        isDisconnected = intent.isAtOnce
        closing = isDisconnected ? intent : intent.union(closing ?? [])
    }
}

enum UpgradeClaim {
    case granted
    /// The connection is closed.
    case over
    /// The caller is closing the connection, or only its writing side if the intent is `nil`.
    case closing(CloseIntent?)
    /// An upgrade has already been started on this connection.
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
    func end(losing loss: ConnectionLoss?) { withLock { $0.snapshot.end(losing: loss) } }

    var remoteAddress: SocketEndpoint? { withLock { $0.live.remoteAddress } }

    /// Publishes the addresses of a connected descriptor, and the descriptor itself for setting options.
    func introduce(_ descriptor: SocketDescriptor, peer: SocketEndpoint?) throws(SystemError) {
        try withLock { record throws(SystemError) in
            guard !record.isOver else { return }
            try record.live.adopt(descriptor)
            guard let peer else { return }
            record.snapshot.isEstablished = true
            record.live.remoteAddress = peer
        }
    }

    /// Publishes a connected descriptor, unless that has already been done. Returns an error if the kernel
    /// rejects an option that was set in the meantime.
    func introduce(connected descriptor: SocketDescriptor, to peer: SocketEndpoint?) -> AsyncSocketError? {
        // An accepted descriptor has already been published.
        if withLock({ $0.snapshot.isEstablished && $0.live.isSettled(descriptor) }) { return nil }
        do throws(SystemError) {
            try introduce(descriptor, peer: remoteAddress ?? peer)
            return nil
        } catch {
            return AsyncSocketError(error, operation: .connect)
        }
    }

    /// Publishes an accepted descriptor. It inherits only some of the listener's options from the kernel;
    /// the remaining options are set now.
    func introduce(_ accepted: AcceptedConnection, awaitsTLS: Bool) throws(AsyncSocketError) {
        do throws(SystemError) {
            withLock { record in
                record.live.lateOptions = record.live.options.notInherited(by: accepted.descriptor)
                record.claims.awaitsTLS = awaitsTLS
            }
            try introduce(accepted.descriptor, peer: accepted.peer)
        } catch {
            throw AsyncSocketError(error, operation: .accept)
        }
    }
}

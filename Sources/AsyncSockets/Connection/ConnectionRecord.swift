internal import SocketCore
internal import SocketTLS

/// What anyone may ask about a connection at any time, behind one lock.
struct ConnectionRecord {
    var snapshot = ConnectionSnapshot()
    var claims = CallerClaims()
    var live = LiveDescriptor()

    /// Closed, or never to be connected, or given up by `disconnect()`: the socket may be used again.
    var isOver: Bool { snapshot.isClosed || claims.isDisconnected }
    /// True while a connection is established that the caller has not given up.
    var isConnected: Bool { snapshot.isEstablished && !isOver }
    /// The local address, once the peer's is known.
    var localAddress: SocketAddress? { snapshot.remoteAddress == nil ? nil : live.localAddress }

    /// The connection has ended. Release the descriptor outside of the lock: what goes with the last
    /// reference takes locks of its own.
    mutating func close() -> SocketDescriptor? {
        snapshot.isClosed = true
        return live.withdraw()
    }
}

/// The facts of a connection, written inside its turn.
struct ConnectionSnapshot {
    var isEstablished = false
    var isClosed = false
    var isSecure = false
    /// Nil when all that was written has left.
    var lostWrites: LostWrites?
    /// Bytes that no one had read went with the connection.
    var hasDroppedBytes = false
    var remoteAddress: SocketAddress?
    var session: CopyOnWrite<TLSSession>?
    /// Answers for as long as the channel has its engine. For callers, who do not enter the turn.
    var exporter: KeyExporter?
    /// The host and port that the caller has asked for; nil when a descriptor was taken over.
    var endpoint: CopyOnWrite<String>?
}

/// Writes that were given up.
struct LostWrites {
    let error: AsyncSocketError
    /// One of them had its answer, so that its caller does not know.
    let isAnswered: Bool
}

/// What callers have asked for: written on their own threads, before the message reaches the connection.
struct CallerClaims {
    /// `disconnect()` was called.
    var isDisconnected = false
    /// `disconnect()` or a `disconnectAfter…` method was called: nothing new is accepted.
    var isClosing = false
    /// `closeWriteStream()` was called.
    var isWriteStreamClosing = false
    /// The host that the caller connects to; nil for a path and for an accepted connection.
    var host: String?
    /// `startTLS` was called: a connection allows that once.
    var isUpgradeClaimed = false
}

/// The descriptor while the connection is established, and its options. The descriptor leaves before it is
/// closed, so that a call under the lock reaches no other file.
struct LiveDescriptor {
    private(set) var descriptor: SocketDescriptor?
    /// Set on every new descriptor.
    var options = SocketOptionSet()
    /// The options that the descriptor may still lack when the connection is established.
    var lateOptions = SocketOptionSet()
    /// The local address at the end.
    private var lastAddress: CopyOnWrite<SocketAddress>?

    /// The local address. The kernel is asked each time, since few callers want to know.
    var localAddress: SocketAddress? {
        guard let descriptor else { return lastAddress?.value }
        return descriptor.localAddress
    }

    /// Takes a descriptor that is connected, and sets what it lacks.
    mutating func adopt(_ descriptor: SocketDescriptor) throws(SystemError) {
        try lateOptions.apply(toConnected: descriptor)
        lateOptions = SocketOptionSet()
        self.descriptor = descriptor
    }

    /// Takes out the descriptor, which is about to be closed.
    mutating func withdraw() -> SocketDescriptor? {
        lastAddress = localAddress.map { CopyOnWrite($0) }
        defer { descriptor = nil }
        return descriptor
    }
}

internal import SocketCore
internal import SocketTLS

/// What anyone may ask about a connection at any time: a snapshot behind a lock.
///
/// The connection writes it inside its turn. Callers write what they claim (`isClosing`, `isUpgradeClaimed`,
/// options) on their own threads, and use the descriptor under the lock.
struct ConnectionFacts {
    var isConnected = false
    /// Closed, or never to be connected; or `disconnect()` has been called, and it is about to be. The socket
    /// may be used again.
    var isOver = false
    /// `disconnect()` or a `disconnectAfter…` method has been called: nothing new is taken.
    var isClosing = false
    /// `closeWriteStream()` has been called.
    var isWriteStreamClosing = false
    var isSecure = false
    /// `startTLS` has been called: it can be only once.
    var isUpgradeClaimed = false
    var remoteAddress: SocketAddress?
    var session: CopyOnWrite<TLSSession>?
    /// The descriptor while the connection is up. It leaves before it is closed, so that what is done to it
    /// under this lock is done to no other file.
    var descriptor: SocketDescriptor?
    /// Set on every new descriptor.
    var options = SocketOptionSet()
    /// Those of the options that the descriptor, once the connection is up, may not have yet.
    var lateOptions = SocketOptionSet()
    var progress = Progress()
    /// What `localAddress` was at the end.
    private var lastLocalAddress: CopyOnWrite<SocketAddress>?

    /// Asked of the kernel, and not kept while the connection is up: few want to know. Nil before that.
    var localAddress: SocketAddress? {
        // The peer's is known from the moment when the connection is up.
        guard let descriptor, remoteAddress != nil else { return lastLocalAddress?.value }
        return descriptor.localAddress
    }

    /// Takes the descriptor away, which is about to be closed.
    mutating func withdrawDescriptor() -> SocketDescriptor? {
        lastLocalAddress = localAddress.map { CopyOnWrite($0) }
        defer { descriptor = nil }
        return descriptor
    }

    /// How far the oldest operations have come.
    struct Progress {
        var read: OperationProgress?
        var write: OperationProgress?
        /// Bytes that neither the kernel nor TLS has taken yet.
        var waitingByteCount = 0
    }
}

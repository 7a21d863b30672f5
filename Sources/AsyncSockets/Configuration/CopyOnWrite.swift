internal import SocketBuffers
internal import SocketTLS

/// A value that its copies share until one of them changes: thousands of accepted sockets share the
/// configuration of their listener.
struct CopyOnWrite<Value: Sendable>: Sendable {
    private final class Box: @unchecked Sendable {
        // Unchecked: changed only through the sole reference.
        @exclusivity(unchecked) var value: Value

        init(_ value: Value) {
            self.value = value
        }
    }

    private var box: Box

    init(_ value: Value) {
        box = Box(value)
    }

    var value: Value {
        // Yielded, not returned: reading one setting would otherwise copy them all, which costs reference
        // counting.
        _read { yield box.value }
        set {
            if isKnownUniquelyReferenced(&box) { box.value = newValue } else { box = Box(newValue) }
        }
    }
}

/// The session of the latest handshake without a peer certificate. Most connections of a server negotiate the
/// same session and share it: a copy for each would take a fifth of a kilobyte.
enum LatestSession {
    private static let latest = Locked<CopyOnWrite<TLSSession>?>(nil)

    /// Returns `session`, or the shared session if it is equal.
    static func share(_ session: TLSSession) -> CopyOnWrite<TLSSession> {
        guard session.peerCertificates.isEmpty else { return CopyOnWrite(session) }
        return latest.withLock { latest in
            if let latest, latest.value == session { return latest }
            let new = CopyOnWrite(session)
            latest = new
            return new
        }
    }
}

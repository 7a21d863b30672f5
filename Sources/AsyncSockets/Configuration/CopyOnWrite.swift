internal import SocketBuffers
internal import SocketTLS

/// A value that its copies share until one of them changes: thousands of accepted sockets share the
/// configuration of their listener.
struct CopyOnWrite<Value: Sendable>: Sendable {
    private final class Box: @unchecked Sendable {
        // Unchecked: changed only by the one who has the only reference.
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
        // Lent: a copy of all settings, to look at one, would count their references.
        _read { yield box.value }
        set {
            if isKnownUniquelyReferenced(&box) { box.value = newValue } else { box = Box(newValue) }
        }
    }
}

/// The session of the latest handshake without a peer certificate. Most connections of a server agree on the
/// same session and share it: a copy for each would take a fifth of a kilobyte.
enum LatestSession {
    private static let latest = Locked<CopyOnWrite<TLSSession>?>(nil)

    /// `session`, or the shared one if it is equal.
    static func share(_ session: TLSSession) -> CopyOnWrite<TLSSession> {
        // A session with certificates is not kept here.
        guard session.peerCertificates.isEmpty else { return CopyOnWrite(session) }
        return latest.withLock { latest in
            if let latest, latest.value == session { return latest }
            let new = CopyOnWrite(session)
            latest = new
            return new
        }
    }
}

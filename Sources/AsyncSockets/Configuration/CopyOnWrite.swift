internal import SocketBuffers
internal import SocketTLS

/// A value that its copies share until one of them changes: thousands of accepted sockets have the settings
/// of their listener, and keep them once.
struct CopyOnWrite<Value: Sendable>: Sendable {
    private final class Box: @unchecked Sendable {
        // Unchecked: changed only by the one who has the only reference.
        var value: Value

        init(_ value: Value) {
            self.value = value
        }
    }

    private var box: Box

    init(_ value: Value) {
        box = Box(value)
    }

    var value: Value {
        get { box.value }
        set {
            if isKnownUniquelyReferenced(&box) { box.value = newValue } else { box = Box(newValue) }
        }
    }
}

/// What the latest handshake without a peer's certificate came to. The connections of a server mostly agree
/// on the same, and have it in common: by themselves they would keep a fifth of a kilobyte each.
enum LatestSession {
    private static let latest = Locked<CopyOnWrite<TLSSession>?>(nil)

    /// `session`, in common with the one before if that says the same.
    static func share(_ session: TLSSession) -> CopyOnWrite<TLSSession> {
        // Certificates are kept for no one.
        guard session.peerCertificates.isEmpty else { return CopyOnWrite(session) }
        return latest.withLock { latest in
            if let latest, latest.value == session { return latest }
            let new = CopyOnWrite(session)
            latest = new
            return new
        }
    }
}

internal import SocketBuffers
internal import SocketTLS

/// A value that all copies share until one of them is changed. For example, thousands of accepted sockets
/// share the configuration of their listener.
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
        // Yielded, not returned: otherwise, reading one setting would copy and retain all of them.
        _read { yield box.value }
        set {
            if isKnownUniquelyReferenced(&box) { box.value = newValue } else { box = Box(newValue) }
        }
    }
}

/// The session of the latest handshake without a peer certificate. Most of a server's connections negotiate
/// equal sessions and share one, because a copy for each connection would take about 200 bytes.
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

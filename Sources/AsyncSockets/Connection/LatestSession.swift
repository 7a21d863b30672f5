internal import SocketBuffers
internal import SocketTLS

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

internal import AsyncSockets
internal import Synchronization

/// A store that receives the sessions that a server offers, and never provides one.
final class SessionCollector: TLSSessionStore {
    private let sessions: AsyncStream<TLSResumableSession>
    private let continuation: AsyncStream<TLSResumableSession>.Continuation

    init() {
        (sessions, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) { continuation.yield(session) }

    func take(for key: TLSSessionStoreKey) -> TLSResumableSession? { nil }

    /// Returns the first session that the server offers, or `nil` if it offers none within `timeout`.
    ///
    /// In TLS 1.3, sessions arrive after the handshake and are processed by a read.
    func session(on socket: AsyncSocket, within timeout: Duration) async -> TLSResumableSession? {
        await withTaskGroup(of: TLSResumableSession?.self) { group in
            group.addTask { await self.sessions.first { _ in true } }
            group.addTask {
                // The server may send data, such as a greeting, before or after the session.
                while (try? await socket.read(timeout: timeout)) != nil {}
                return nil
            }
            defer { group.cancelAll() }
            return await group.next() ?? nil
        }
    }
}

/// The certificates and the verdict that the trust callback received.
final class TrustRecord: Sendable {
    private let value = Mutex<PeerTrust?>(nil)

    var trust: PeerTrust? { value.withLock { $0 } }

    /// Records the verdict and accepts the server, so that the inspection can continue.
    func accept(_ trust: PeerTrust) -> Bool {
        value.withLock { $0 = trust }
        return true
    }
}

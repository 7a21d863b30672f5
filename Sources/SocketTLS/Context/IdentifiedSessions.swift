internal import COpenSSL
internal import SocketBuffers

/// The sessions of clients in TLS 1.2 that keep them by identifier, and send no ticket extension (RFC 5246,
/// 7.3). They stay in the memory of one context: the newest ones, of a bounded number.
package final class IdentifiedSessions: Sendable {
    private struct State {
        var sessions: [[UInt8]: SessionHandle] = [:]
        /// The identifiers, each written over when it is the oldest.
        var identifiers: [[UInt8]] = []
        var oldest = 0
    }

    private let state = Locked(State())
    private let limit: Int

    package init(limit: Int = 1024) {
        self.limit = limit
    }

    package var count: Int { state.withLock { $0.sessions.count } }

    /// Takes over a reference to a session that has an identifier.
    package func store(_ session: OpaquePointer) {
        let (identifier, handle) = (Self.identifier(of: session), SessionHandle(owning: session))
        guard !identifier.isEmpty else { return }
        // The one that it replaces is released outside of the lock.
        let replaced = state.withLock { state -> SessionHandle? in
            var replaced: SessionHandle?
            if state.identifiers.count < limit {
                state.identifiers.append(identifier)
            } else {
                replaced = state.sessions.removeValue(forKey: state.identifiers[state.oldest])
                state.identifiers[state.oldest] = identifier
                state.oldest = (state.oldest + 1) % limit
            }
            state.sessions[identifier] = handle
            return replaced
        }
        withExtendedLifetime(replaced) {}
    }

    func session(_ identifier: UnsafeBufferPointer<UInt8>) -> SessionHandle? {
        let key = Array(identifier)
        return state.withLock { $0.sessions[key] }
    }

    package func contains(_ identifier: [UInt8]) -> Bool { identifier.withUnsafeBufferPointer { session($0) != nil } }

    private static func identifier(of session: OpaquePointer) -> [UInt8] {
        var count: UInt32 = 0
        let bytes = SSL_SESSION_get_id(session, &count)
        return Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
    }
}

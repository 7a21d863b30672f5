/// Which sessions a client resumes, and where it stores the sessions that servers offer.
public enum TLSResumption: Sendable, Hashable {
    /// Disables resumption.
    case none
    /// Uses the sessions in this process's memory: `TLSInMemorySessionStore.shared`.
    case inMemory
    /// Uses the sessions in a store. Two settings are equal only if they contain the same object.
    case store(any TLSSessionStore)
    /// Uses the session from another connection (`TLSSession.resumable`), such as an FTP control connection
    /// if its server requires the same session for each data connection. No store is used.
    ///
    /// The session must be from a connection with the same server name and the same settings, but may be
    /// from another port. Otherwise `startTLS` fails with `invalidSettings`. If the session is no longer
    /// usable, or the server rejects it, a full handshake is performed.
    case session(TLSResumableSession)

    /// Returns whether both values are the same case and, for stores and sessions, contain the same
    /// object.
    public static func == (left: TLSResumption, right: TLSResumption) -> Bool {
        switch (left, right) {
        case (.none, .none), (.inMemory, .inMemory): true
        case (.store(let left), .store(let right)): left === right
        case (.session(let left), .session(let right)): left === right
        default: false
        }
    }

    /// Hashes the case, and the identity of the store or session.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .none: hasher.combine(0)
        case .inMemory: hasher.combine(1)
        case .store(let store): hasher.combine(ObjectIdentifier(store))
        case .session(let session): hasher.combine(ObjectIdentifier(session))
        }
    }
}

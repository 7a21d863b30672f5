/// Which sessions a client resumes, and where it keeps those that servers offer.
public enum TLSResumption: Sendable, Hashable {
    /// None.
    case none
    /// The sessions of this process: `TLSSessionMemory.shared`.
    case inMemory
    /// The sessions of a store. Two settings are equal only if they name the same object.
    case store(any TLSSessionStore)
    /// The session of another connection (`TLSSession.resumable`), such as the control connection
    /// of FTP, whose server wants to see it again on each data connection. Nothing is taken from a store
    /// or put into one.
    ///
    /// The session has to come from a connection with the same server name and the same settings, but may
    /// come from another port: otherwise `startTLS` fails with `invalidSettings`. If it is no longer
    /// usable, or the server refuses it, the handshake is a full one.
    case session(TLSResumableSession)

    /// Stores and sessions are equal if they are the same object.
    public static func == (left: TLSResumption, right: TLSResumption) -> Bool {
        switch (left, right) {
        case (.none, .none), (.inMemory, .inMemory): true
        case (.store(let left), .store(let right)): left === right
        case (.session(let left), .session(let right)): left === right
        default: false
        }
    }

    /// Hashes the kind, and the identity of the object.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .none: hasher.combine(0)
        case .inMemory: hasher.combine(1)
        case .store(let store): hasher.combine(ObjectIdentifier(store))
        case .session(let session): hasher.combine(ObjectIdentifier(session))
        }
    }
}

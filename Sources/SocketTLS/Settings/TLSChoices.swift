/// A side of the handshake.
public enum TLSRole: Sendable, Hashable {
    /// The side that begins, and the name or address that it expects; nil: the host that the program
    /// connected to.
    case client(serverName: String?)
    /// The side that answers.
    case server
}

/// Whether OpenSSL, the trust callback, or both decide about the peer's certificate.
public enum TLSTrustEvaluation: Sendable, Hashable {
    /// OpenSSL alone.
    case builtIn
    /// OpenSSL, and then the trust callback, which can only refuse more: it is asked if OpenSSL accepts.
    case delegate
    /// The trust callback alone, which receives OpenSSL's verdict.
    ///
    /// **Dangerous**: a callback that accepts everything lets anyone pose as the peer.
    case manual
}

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

/// The treatment of bytes that arrived before the upgrade to TLS began.
public enum TLSBytesBufferedAtUpgrade: Sendable, Hashable {
    /// They end the connection: a server never speaks first in TLS, so it cannot have sent them honestly.
    case reject
    /// They must be the beginning of the TLS handshake; otherwise it fails.
    case feedToTLS
}

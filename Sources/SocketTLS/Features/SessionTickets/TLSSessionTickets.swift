/// The session tickets that a server sends after a full handshake (RFC 8446, section 4.6.1).
///
/// A client that returns with a ticket resumes its session: it needs no certificate and no signature. In TLS
/// 1.3 it makes a new key exchange; in TLS 1.2 it does not, so the keys of the tickets protect what such a
/// connection carries. In TLS 1.3 a resumed handshake brings one new ticket. A session ends an hour after its
/// full handshake. In TLS 1.3 the tickets leave when the handshake is complete, together with data that the
/// server writes in its callback. A client in TLS 1.2 that knows no tickets resumes by the identifier of its
/// session, of which the newest 1,024 are kept.
public enum TLSSessionTickets: Sendable, Hashable {
    /// None.
    case none
    /// So many, 1 to 8. One is enough for clients that open one connection at a time, and in TLS 1.2 there is
    /// never more than one.
    ///
    /// Without a source the keys are random. They belong to this process, and to connections whose settings
    /// agree. A key encrypts tickets for an hour from its first one, and decrypts them for one more. It is
    /// wiped when a ticket is next made or shown after that. A ticket whose key is gone costs a full
    /// handshake. A process with more than 64 different settings that issue tickets keeps the keys of the 64
    /// that it used last.
    ///
    /// With a source, servers resume each other's sessions. All of them need the same identity, `policy`,
    /// `clients`, trust settings and `applicationProtocols`, and clocks that agree. Two sources are equal
    /// only if they are the same object.
    case issued(Int, keys: (any TLSTicketKeySource)? = nil)

    var count: Int {
        switch self {
        case .none: 0
        case .issued(let count, _): count
        }
    }

    var keySource: (any TLSTicketKeySource)? {
        if case .issued(_, let keys) = self { keys } else { nil }
    }

    /// True for the same number, and the same object as the source of keys.
    public static func == (left: TLSSessionTickets, right: TLSSessionTickets) -> Bool {
        switch (left, right) {
        case (.none, .none): true
        case (.issued(let left, let leftKeys), .issued(let right, let rightKeys)): left == right && leftKeys === rightKeys
        default: false
        }
    }

    /// Hashes the number.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .none: hasher.combine(0)
        case .issued(let count, _): hasher.combine(count)
        }
    }
}

/// The session tickets that a server issues after a full handshake (RFC 8446, section 4.6.1).
///
/// A client that returns with a ticket resumes its session, which requires no certificate and no
/// signature. In TLS 1.3 resumption includes a new key exchange. In TLS 1.2 it does not, so the ticket
/// keys also protect the data of the resumed connection. In TLS 1.3 a resumed handshake issues one new
/// ticket. A session expires an hour after its full handshake.
///
/// In TLS 1.3 the tickets are sent when the handshake is complete, together with data that the server
/// writes in its callback. A TLS 1.2 client without ticket support resumes by session identifier; the
/// newest 1,024 such sessions are kept.
public enum TLSSessionTickets: Sendable, Hashable {
    /// No tickets are issued.
    case none
    /// The number of tickets to issue, from 1 to 8, and optionally the source of their keys. One ticket
    /// is enough for clients that open one connection at a time. In TLS 1.2 there is never more than one
    /// ticket.
    ///
    /// Without a source, the keys are random. They are private to this process and to connections with
    /// equal settings. A key encrypts tickets for an hour, starting with its first ticket, and decrypts
    /// them for another hour. It is wiped when a ticket is next issued or received after that. A ticket
    /// with an expired key results in a full handshake. If a process has more than 64 different settings
    /// that issue tickets, it keeps the keys of the 64 most recently used.
    ///
    /// With a source, servers resume each other's sessions. All servers need the same identity, `policy`,
    /// `clients`, trust settings and `applicationProtocols`, and synchronized clocks. Two sources are
    /// equal only if they are the same object.
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

    /// Returns whether both values have the same number of tickets and the same object as the source of
    /// keys.
    public static func == (left: TLSSessionTickets, right: TLSSessionTickets) -> Bool {
        switch (left, right) {
        case (.none, .none): true
        case (.issued(let left, let leftKeys), .issued(let right, let rightKeys)): left == right && leftKeys === rightKeys
        default: false
        }
    }

    /// Hashes the number of tickets.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .none: hasher.combine(0)
        case .issued(let count, _): hasher.combine(count)
        }
    }
}

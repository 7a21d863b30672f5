/// Facts that an engine has about the tickets of its connection.
struct TicketFacts {
    /// The key for the tickets that are being made; nil: the context knows.
    var key: TLSTicketKey?
    /// No lock is held, so a source of keys can be asked.
    var mayAskSource = true
    /// The digest of the name by which a server's settings were chosen (`TLSClientHello.nameDigest`); 0 if
    /// they were not.
    var name = 0
    /// When the proof ends that the peer may be trusted: the certificates of its chain, and the lists by
    /// which they are not revoked. In seconds since 1970; nil without one.
    var evidenceEnd: Int?
}

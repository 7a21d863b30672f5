/// The facts that an engine supplies about the tickets of its connection.
struct TicketFacts {
    /// The key for the tickets being created; `nil` if the context chooses the key.
    var key: TLSTicketKey?
    /// Whether a key source may be called, because no lock is held.
    var mayAskSource = true
    /// The digest of the client's server name (`TLSClientHello.nameDigest`) if a server's settings were
    /// selected for that name, or else 0.
    var name = 0
    /// When the evidence for trusting the peer expires: the certificates of its chain, and the lists that
    /// prove they are not revoked. In seconds since 1970; `nil` if no evidence was used.
    var evidenceEnd: Int?
}

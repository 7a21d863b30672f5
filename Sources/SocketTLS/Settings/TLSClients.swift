/// How clients prove to a server who they are, and whether they may resume their sessions.
///
/// ```swift
/// settings.clients = .certificates(.required)
/// settings.clients = .anyone(tickets: .issued(1))
/// ```
public enum TLSClients: Sendable, Hashable {
    /// The server does not ask. It may send session tickets after a handshake.
    case anyone(tickets: TLSSessionTickets)
    /// The server does not ask, and takes early data from clients that resume (RFC 8446, section 2.3): up to
    /// so many bytes of each, 1 to 65,536, with so many tickets, 1 to 8, whose keys belong to this process.
    ///
    /// They are delivered ahead of all other data when the handshake is complete: what someone has recorded
    /// and sends again is never delivered. So this alone saves no time; a responder does, which answers
    /// before the handshake is complete. Each ticket brings early data once, and only within seconds of the
    /// time that its client states (RFC 8446, section 8); more than 49,152 uses in 20 seconds are rejected.
    /// Early data is not forward secret: with the keys of the tickets, which this process has for two hours,
    /// anyone can read what was recorded.
    case anyoneWithEarlyData(upTo: Int, tickets: Int = 1, responder: TLSEarlyDataResponder? = nil)
    /// By certificates, which lead to `TLSSettings.trustRoots` and obey these rules.
    ///
    /// With tickets, a client that resumes does not show its certificate again, and does not prove that it
    /// still has the key. The verdict goes with the ticket, for an hour at most and not beyond the end of the
    /// certificate: a certificate that is revoked meanwhile still counts. With `trustEvaluation` set to
    /// `.delegate` you are asked again, and get the client's own certificate without its chain. With
    /// `.manual` tickets are an error.
    case certificates(TLSClientCertificates, TLSCertificateRules = TLSCertificateRules(), tickets: TLSSessionTickets = .none)
    /// By certificates for which the server asks when its program says so, after the handshake: see
    /// `AsyncSocket.beginClientCertificateRequest(isRequired:)`. The handshake asks for none (RFC 8446,
    /// section 4.6.2).
    ///
    /// Only TLS 1.3 has it, and only clients that offer it can be asked. Tickets are made before the first
    /// request, so a client that resumes is one without a certificate.
    case certificatesOnRequest(TLSCertificateRules = TLSCertificateRules(), tickets: TLSSessionTickets = .none)
    /// The server does not ask, and shows the public key of its `identity` without the certificate (RFC
    /// 7250): its clients know the key. One that does not take raw public keys gets the certificate
    /// nevertheless.
    ///
    /// It needs OpenSSL 3.2 or newer, as do the three cases after it. Raw public keys bring no tickets.
    case anyoneWithOwnRawPublicKey
    /// By certificates, while the server shows its public key without the certificate.
    case certificatesWithOwnRawPublicKey(TLSClientCertificates, TLSCertificateRules = TLSCertificateRules())
    /// By one of these public keys, and not by a certificate.
    case rawPublicKeys(TLSRawPublicKeys, TLSClientCertificates = .required)
    /// By one of these public keys, or by a certificate. A client that has an expected key need not obey any
    /// rule for certificates.
    case rawPublicKeysOrCertificates(
        TLSRawPublicKeys, TLSClientCertificates = .required, TLSCertificateRules = TLSCertificateRules())
    /// By keys that both sides have, and by nothing else: see `TLSPreSharedKeys` and
    /// `server(preSharedKeys:)`, which sets `minimumVersion` too. The server shows no certificate, so it
    /// needs no identity.
    ///
    /// A server answers an unknown identity as it answers a wrong key, with the alert `decrypt_error` (in
    /// TLS 1.2 `bad_record_mac`). This hides the identities that it has (RFC 4279, section 2).
    case preSharedKeys(TLSPreSharedKeys)
    /// By one of these keys, or else by nothing: the server then shows a certificate, and may send tickets. A
    /// connection with a key brings none. In TLS 1.3 a client can find out which identities a server has.
    case preSharedKeysOrAnyone(TLSPreSharedKeys, tickets: TLSSessionTickets = .none)
    /// By one of these keys, or else by certificates, as in `certificates`. A client that has a key need not
    /// obey any rule for certificates, so the connection is as safe as the weaker of the two ways.
    case preSharedKeysOrCertificates(
        TLSPreSharedKeys, TLSClientCertificates, TLSCertificateRules = TLSCertificateRules(),
        tickets: TLSSessionTickets = .none)

    /// The server does not ask, and sends no tickets.
    public static var anyone: TLSClients { .anyone(tickets: .none) }
}

/// Whether a client without a certificate, or without a raw public key, is admitted. One with a bad
/// certificate or an unexpected key is not.
public enum TLSClientCertificates: Sendable, Hashable {
    /// It is admitted.
    case optional
    /// It is not.
    case required
}

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

/// Whether and when a server asks for a certificate.
package enum TLSCertificateRequest: Sendable, Hashable {
    case none
    case optional
    case required
    case onRequest

    init(_ demand: TLSClientCertificates) {
        switch demand {
        case .optional: self = .optional
        case .required: self = .required
        }
    }
}

/// The early data that a server takes.
package struct EarlyDataAcceptance: Sendable, Hashable {
    package var limit: Int
    package var responder: TLSEarlyDataResponder?
}

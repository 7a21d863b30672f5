public import FoundationEssentials

/// How one side of a connection uses TLS.
///
/// Start from `client`, `client(serverName:)` or `server(identity:)` and change what differs. The defaults
/// are safe: TLS 1.2 or newer, and a client verifies the server's certificate against the system's roots and
/// its name.
public struct TLSSettings: Sendable, Hashable {
    /// The side of the handshake.
    public private(set) var role: Role
    /// This side's certificate and key. A server requires one; a client shows it if it is asked.
    public var identity: TLSIdentity?
    /// A server's identities beside `identity`, each with another kind of key: RSA beside ECDSA, for
    /// instance.
    ///
    /// OpenSSL shows each client one that it can verify, by the signature algorithms that the client names
    /// (RFC 8446, section 4.4.2.2). Two with the same kind of key are an error (all curves of ECDSA are one
    /// kind), and so is any on a client.
    public var additionalIdentities: [TLSIdentity] = []
    /// The roots that the peer's certificate must lead to; on a server, those of client certificates.
    public var trustRoots: TrustRoots = .system
    /// Whether a chain may end at any certificate of `trustRoots`, and not only at one that signed itself.
    ///
    /// With it an intermediate is a root of its own, and so is a server's certificate: what is in
    /// `trustRoots` is trusted, whoever signed it.
    public var acceptsPartialChains = false
    /// The time at which the peer's certificates must be valid; nil for the present.
    ///
    /// For tests, and for machines whose clock is wrong. **Dangerous to set to the past**: a certificate that
    /// has expired since then is accepted.
    public var verificationTime: Date?
    /// Whether chains must obey RFC 5280 to the letter.
    ///
    /// OpenSSL then refuses, for instance, authorities without key identifiers or critical basic constraints
    /// (`X509_V_FLAG_X509_STRICT`). This library also refuses a peer whose own certificate is that of an
    /// authority (CA:TRUE).
    public var isStrict = false
    /// Lists of revoked certificates (CRL, RFC 5280, section 5); empty for no check.
    ///
    /// With any, each certificate that is checked needs a list of its issuer that has not expired: without
    /// one the peer is refused with `certificateRejected`, and with `certificateRevoked` if the list names
    /// the certificate. The library loads no list by itself. It reads files again when they change: replace
    /// them by renaming, so that no one reads half a list.
    public var revocationLists: [RevocationSource] = []
    /// Which certificates `revocationLists` are for.
    public var revocationScope: RevocationScope = .chain
    /// Whether a client asks the server for proof that its certificate is not revoked: an OCSP response that
    /// the server staples to the handshake (RFC 6066, section 8; RFC 8446, section 4.4.2.1). On a server
    /// anything but `.none` is an error.
    ///
    /// A response counts if the issuer of the certificate has signed it, or someone to whom it has delegated
    /// that, and if it is for this certificate and for now. The trust callback is asked before, and cannot
    /// overrule it.
    public var ocspStapling: OCSPStapling = .none
    /// SHA-256 digests of public keys (`Certificate.publicKeySHA256`): one of them must be in the peer's
    /// verified chain, root included (RFC 7469, section 2.6); empty for no such rule.
    ///
    /// Put in a backup pin too, of a key that you keep elsewhere: without it a lost key locks every client
    /// out. Pins add a rule to the verification: a chain that is not trusted stays so. A chain without a
    /// pinned key fails with `pinMismatch`, and the trust callback cannot overrule that. If the callback
    /// accepts a chain without a trusted root, the peer's own key has to be a pinned one.
    public var pins: Set<[UInt8]> = []
    /// Whether `pins` refuse no one: `TLSSession.matchesPins` shows what they would do.
    public var onlyReportsPins = false
    /// Whether the server's certificate must be for the name in `role`.
    ///
    /// **Dangerous to turn off**: anyone with a valid certificate for *any* name can then pose as the server.
    public var verifiesHostName = true
    /// What may be negotiated: cipher suites, groups, signatures. `.intermediate` by default.
    public var policy = TLSPolicy.intermediate
    /// The oldest version that is accepted, unless `policy` wants a newer one.
    public var minimumVersion: TLSVersion = .tls12
    /// The newest version that is accepted; nil for the newest that OpenSSL supports.
    public var maximumVersion: TLSVersion?
    /// Application protocols for ALPN (RFC 7301), the preferred one first; empty for none.
    ///
    /// A server that shares none with a client's list ends the handshake with `no_application_protocol`. A
    /// client goes on without one if the server chooses none: check `TLSSession.applicationProtocol`.
    public var applicationProtocols: [String] = []
    /// Keys that both sides have had from elsewhere, instead of certificates; nil for none. See
    /// `client(serverName:preSharedKey:)` and `server(preSharedKeys:)`, which set `minimumVersion` too.
    ///
    /// No trust callback is asked about a peer that has proved to have the key: there is no certificate to
    /// judge, so `trustEvaluation` means nothing then. A connection with such a key brings no session
    /// tickets, and a client with one resumes nothing.
    public var preSharedKeys: TLSPreSharedKeys?
    /// Public keys without certificates (RFC 7250), those that the peer may have and this side's own; nil,
    /// the default, for certificates only. It needs OpenSSL 3.2 or newer: see `TLSRawPublicKeys`.
    public var rawPublicKeys: TLSRawPublicKeys?
    /// Whether a server asks for a client certificate. On a client anything but `.none` is an error.
    public var clientCertificates: ClientCertificates = .none
    /// How many session tickets a server sends after a full handshake (RFC 8446, section 4.6.1): 0 to 8; 0 by
    /// default. On a client `startTLS` throws `invalidSettings` for anything else.
    ///
    /// A client that returns with a ticket resumes its session: it needs no certificate and no signature. In
    /// TLS 1.3 it makes a new key exchange; in TLS 1.2 it does not, so the keys of the tickets protect what
    /// such a connection carries. One ticket is enough for clients that open one connection at a time, and in
    /// TLS 1.2 there is never more than one. A resumed handshake brings one new ticket. A session ends an
    /// hour after its full handshake. In TLS 1.3 the tickets leave when the handshake is complete, together
    /// with data that the server writes in its callback. A client in TLS 1.2 that knows no tickets resumes by
    /// the identifier of its session, of which the newest 1,024 are kept. For client certificates see
    /// `resumesClientCertificates`, for early data `maximumEarlyDataBytes`.
    ///
    /// Unless you give `ticketKeys`, the keys are random. They belong to this process, and to connections
    /// whose settings agree. A key encrypts tickets for an hour from its first one, and decrypts them for one
    /// more. It is wiped when a ticket is next made or shown after that. A ticket whose key is gone costs a
    /// full handshake. A process with more than 64 different settings that issue tickets keeps the keys of
    /// the 64 that it used last.
    public var sessionTicketCount = 0
    /// The keys of session tickets, for servers that resume each other's sessions: nil, the default, for keys
    /// of this process. All of these servers need the same identity, `policy`, `clientCertificates`, trust
    /// settings and `applicationProtocols`, and clocks that agree.
    public var ticketKeys: (any TLSTicketKeySource)? {
        get { ticketKeyReference?.source }
        set { ticketKeyReference = newValue.map { TicketKeySourceReference(source: $0) } }
    }
    var ticketKeyReference: TicketKeySourceReference?
    /// Whether a server that asks for client certificates issues tickets; false by default.
    ///
    /// A client that resumes does not show its certificate again, and does not prove that it still has the
    /// key. The verdict goes with the ticket, for an hour at most and not beyond the end of the certificate:
    /// a certificate that is revoked meanwhile still counts. With `.delegate` you are asked again, and get
    /// the client's own certificate without its chain. With `.manual` this is an error.
    public var resumesClientCertificates = false
    /// How many bytes of early data a server takes from a client that resumes (RFC 8446, section 2.3): 0 to
    /// 65,536; 0, for none, by default.
    ///
    /// They are delivered ahead of all other data when the handshake is complete: what someone has recorded
    /// and sends again is never delivered. So this alone saves no time; `earlyDataResponder` does. Each
    /// ticket brings early data once, and only within seconds of the time that its client states (RFC 8446,
    /// section 8); more than 49,152 uses in 20 seconds are rejected. Early data is not forward secret: who
    /// gets the keys of the tickets, which this process has for two hours, can read what was recorded.
    ///
    /// It needs a `sessionTicketCount` above 0. It cannot go with `ticketKeys`, since no process knows what
    /// was sent to the others, nor with `clientCertificates`: `startTLS` throws `invalidSettings`.
    public var maximumEarlyDataBytes = 0
    /// Who answers early data before the handshake is complete; nil, the default, for no one.
    public var earlyDataResponder: TLSEarlyDataResponder?
    /// Whether a client lets the server ask for its certificate after the handshake (RFC 8446, section
    /// 4.6.2); false by default. On a server this is an error.
    ///
    /// Some servers ask when they know what the client wants. The client answers while it reads: with
    /// `identity`, or with no certificate when it has none. Only TLS 1.3 has it.
    public var allowsPostHandshakeAuthentication = false
    /// What a client sends with its first message, if a session allows it, or else right after the handshake;
    /// nil, the default, for nothing. Read what it costs: `TLSEarlyData`.
    ///
    /// It leaves before anyone could be asked about the server. So it cannot go with a trust callback
    /// (`trustEvaluation`), and it needs `resumption`: `startTLS` throws `invalidSettings`.
    public var earlyData: TLSEarlyData?
    /// Other settings for clients that ask for certain names (SNI); nil: these settings for all.
    public var serverNames: TLSServerNames?
    /// The settings were chosen by name, which the server tells the client (RFC 6066, section 3).
    var acknowledgesServerName = false
    /// Which sessions a client resumes, and where it keeps those that servers offer: in the memory of the
    /// process by default. On a server it means nothing.
    ///
    /// A resumed handshake is shorter, and needs no certificate. The verdict on the server's certificates
    /// goes with the session. A session is kept once the verdict is positive; it is resumed only for the same
    /// host, port, server name, trust settings, identity, versions and application protocols, and for seven
    /// days at most. With `trustEvaluation` set to `.delegate` or `.manual` you are asked for a resumed
    /// session too, with the certificates that came first. See `TLSSession.isResumed`.
    public var resumption: Resumption = .inMemory
    /// The most bytes that the peer's certificates may have in total: 1,024 to 1,048,576. A usual chain has
    /// 2,000 to 6,000.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before they are parsed. On a client this
    /// also limits the names of accepted issuers, which a server sends when it asks for a certificate.
    public var maximumCertificateChainBytes = 64 * 1024
    /// The most certificates that the peer may show, including its own, and the most that may lie between its
    /// own and a root: 1 to 100.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before one of them is decoded. So does a
    /// key that is too expensive to verify with: RSA with more than 8,192 bits or an exponent of more than 64
    /// bits, a curve of more than 521 bits or one that the certificate describes itself, DSA, and DH.
    public var maximumCertificateChainLength = 10
    /// Who decides about the peer's certificate; on a server for each name of `serverNames` too.
    public var trustEvaluation: TrustEvaluation = .builtIn
    /// How long the handshake may take from its beginning, without the time for the trust callback. A
    /// task's `startTLS` also gives the writes before it that long for each byte; a delegate's `beginTLS`
    /// waits for the reads and writes before it as long as those may take.
    public var handshakeTimeout: Duration = .seconds(30)
    /// How long the trust callback may take.
    public var trustTimeout: Duration = .seconds(30)
    /// A file to which the secrets of every connection are appended, in the format of NSS, which Wireshark
    /// reads; nil, the default, for none. The variable SSLKEYLOGFILE is not read.
    ///
    /// **Dangerous**: a reader of the file can read all that these connections carry, also when it was
    /// recorded earlier. Only for finding faults, and never in production.
    ///
    /// The file is made for its owner only (mode 0600). It stays open for as long as a connection, or the
    /// memory of settings, uses it: give a new path instead of moving it. `startTLS` throws `invalidSettings`
    /// if it cannot be opened. A line that cannot be written, because the disk is full, is lost.
    public var keyLogFile: String?
    /// What happens to bytes that arrived before the upgrade to TLS began, and were not read.
    public var bytesBufferedAtUpgrade: BytesBufferedAtUpgrade

    /// Settings of a client that expects `serverName`, a host name or an IP address.
    ///
    /// The client verifies the server's certificate for this name, and sends the name by SNI unless it is an
    /// address. Names outside ASCII must be given as A-labels ("xn--…"). One final dot is ignored.
    public static func client(serverName: String) -> TLSSettings {
        TLSSettings(role: .client(serverName: serverName), identity: nil, bytesBufferedAtUpgrade: .reject)
    }

    /// Settings of a client that expects the host that the program connected to, as if its name or address
    /// were given to `client(serverName:)`.
    ///
    /// With a proxy that is the host behind it. A connection without one, such as that to a path or an
    /// accepted one, needs a name: `startTLS` throws `invalidSettings`.
    public static var client: TLSSettings {
        TLSSettings(role: .client(serverName: nil), identity: nil, bytesBufferedAtUpgrade: .reject)
    }

    /// The same, with `host` as the server's name unless a name was given.
    package func expecting(_ host: String?) -> TLSSettings {
        guard case .client(serverName: nil) = role else { return self }
        var named = self
        named.role = .client(serverName: host)
        return named
    }

    /// Settings of a server that shows `identity`.
    public static func server(identity: TLSIdentity) -> TLSSettings {
        TLSSettings(role: .server, identity: identity, bytesBufferedAtUpgrade: .feedToTLS)
    }

    init(role: Role, identity: TLSIdentity?, bytesBufferedAtUpgrade: BytesBufferedAtUpgrade) {
        self.role = role
        self.identity = identity
        self.bytesBufferedAtUpgrade = bytesBufferedAtUpgrade
    }
}

extension TLSSettings {
    /// A side of the handshake.
    public enum Role: Sendable, Hashable {
        /// The side that begins, and the name or address that it expects; nil: the host that the program
        /// connected to.
        case client(serverName: String?)
        /// The side that answers.
        case server
    }

    /// Whether a server asks for a client certificate.
    public enum ClientCertificates: Sendable, Hashable {
        /// The server does not ask.
        case none
        /// The server asks. It admits a client without a certificate, but not one with a bad certificate.
        case optional
        /// The server asks, and admits no client without a good certificate.
        case required
        /// The server asks when its program says so, after the handshake: see
        /// `AsyncSocket.beginClientCertificateRequest(isRequired:)`. The handshake asks for none (RFC 8446,
        /// section 4.6.2).
        ///
        /// Only TLS 1.3 has it, and only clients that offer it can be asked. Where tickets are issued, they
        /// are made before the first request, so a client that resumes is one without a certificate.
        case onRequest
    }

    /// Who decides about the peer's certificate.
    public enum TrustEvaluation: Sendable, Hashable {
        /// OpenSSL alone.
        case builtIn
        /// OpenSSL, and then the trust callback, which can only refuse more: it is asked if OpenSSL accepts.
        case delegate
        /// The trust callback alone, which receives OpenSSL's verdict.
        ///
        /// **Dangerous**: a callback that accepts everything lets anyone pose as the peer.
        case manual
    }

    /// Where lists of revoked certificates come from.
    public enum RevocationSource: Sendable, Hashable {
        /// A file with any number of lists in PEM, or one in DER.
        case file(path: String)
        /// Every file of a folder whose name ends in `.crl` or `.pem`, and those that c_rehash(1) has named
        /// by hash.
        case folder(path: String)
    }

    /// Whether a client asks for a stapled OCSP response.
    public enum OCSPStapling: Sendable, Hashable {
        /// The client does not ask.
        case none
        /// The client asks, and refuses a bad response. Without a response it goes on, unless the certificate
        /// says that there must be one (RFC 7633).
        case requested
        /// The client asks, and refuses a server without a good response.
        case required
    }

    /// Which certificates are looked up in `revocationLists`.
    public enum RevocationScope: Sendable, Hashable {
        /// The peer's own.
        case leaf
        /// All but the root.
        case chain
    }

    /// Which sessions a client resumes, and where it keeps those that servers offer.
    public enum Resumption: Sendable, Hashable {
        /// None.
        case none
        /// The sessions of this process: `TLSSessionMemory.shared`.
        case inMemory
        /// The sessions of a store. Two settings are equal only if they name the same object.
        case store(any TLSSessionStore)
        /// One session: that of another connection (`TLSSession.resumable`), such as the control connection
        /// of FTP, whose server wants to see it again on each data connection. Nothing is taken from a store
        /// or put into one.
        ///
        /// The session has to come from a connection with the same server name and the same settings, but may
        /// come from another port: otherwise `startTLS` fails with `invalidSettings`. If it is no longer
        /// usable, or the server refuses it, the handshake is a full one.
        case session(TLSResumableSession)

        /// Stores and sessions are equal if they are the same object.
        public static func == (left: Resumption, right: Resumption) -> Bool {
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

    /// What happens to bytes that arrived before the upgrade to TLS began.
    public enum BytesBufferedAtUpgrade: Sendable, Hashable {
        /// They end the connection: a server never speaks first in TLS, so it cannot have sent them honestly.
        case reject
        /// They must be the beginning of the TLS handshake; otherwise it fails.
        case feedToTLS
    }
}

/// A source of ticket keys; equal if it is the same object.
struct TicketKeySourceReference: Sendable, Hashable {
    let source: any TLSTicketKeySource

    static func == (left: Self, right: Self) -> Bool { left.source === right.source }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(source)) }
}

/// How a server proves its identity to a client.
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]), ocspStapling: .required)
/// settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// ```
public enum TLSServerProof: Sendable, Hashable {
    /// The server presents a certificate, which must also obey these rules.
    case certificates(TLSCertificateRules, ocspStapling: TLSOCSPStapling = .none)
    /// The server presents a certificate. The client, if requested, presents the public key of its `identity`
    /// without the certificate (RFC 7250). A server that does not support raw public keys receives the
    /// certificate instead.
    ///
    /// Requires OpenSSL 3.2 or newer, as do the next two cases.
    case certificatesWithOwnRawPublicKey(
        TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// The server has one of these public keys. A certificate is rejected before it is verified, with
    /// `rawPublicKeyMissing` and the alert `unsupported_certificate`.
    case rawPublicKeys(TLSRawPublicKeys)
    /// The server has one of these public keys, or presents a certificate. The rules for certificates,
    /// including the name, do not apply to a server with an expected key.
    case rawPublicKeysOrCertificates(
        TLSRawPublicKeys, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// The server has this pre-shared key, and no other proof is accepted: see `TLSPreSharedKey`, and
    /// `client(serverName:preSharedKey:)`, which also sets `minimumVersion`. The client neither presents nor
    /// accepts a certificate, so it needs no roots.
    ///
    /// The trust callback is not called for a server that has proved possession of the key. There is no
    /// certificate to evaluate, so `trustEvaluation` has no effect in that case. The connection provides no
    /// session tickets.
    case preSharedKey(TLSPreSharedKey)
    /// The server has this pre-shared key, or else presents a certificate. The rules for certificates do not
    /// apply to a server with the key, so the connection is only as safe as the weaker of the two proofs.
    case preSharedKeyOrCertificates(
        TLSPreSharedKey, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)

    /// The server presents a certificate, without further rules.
    public static var certificates: TLSServerProof { .certificates(TLSCertificateRules()) }
}

extension TLSSettingValues {
    /// The proof that a client requires of the server. Setting a case replaces all parts, so no rule of the
    /// previous proof remains.
    var serverProof: TLSServerProof {
        get {
            switch proof {
            case .certificates: .certificates(rules, ocspStapling: ocspStapling)
            case .rawPublicKeys(let keys) where !keys.expectsKeys:
                .certificatesWithOwnRawPublicKey(rules, ocspStapling: ocspStapling)
            case .rawPublicKeys(let keys):
                keys.use == .required
                    ? .rawPublicKeys(keys)
                    : .rawPublicKeysOrCertificates(keys.used(.required), rules, ocspStapling: ocspStapling)
            case .preSharedKeys(let keys):
                // A client never has a list of keys.
                keys.only.map {
                    keys.use == .required
                        ? .preSharedKey($0) : .preSharedKeyOrCertificates($0, rules, ocspStapling: ocspStapling)
                } ?? .certificates(rules, ocspStapling: ocspStapling)
            }
        }
        set {
            (rules, ocspStapling) = (TLSCertificateRules(), .none)
            switch newValue {
            case .certificates(let rules, let stapling): (proof, self.rules, ocspStapling) = (.certificates, rules, stapling)
            case .certificatesWithOwnRawPublicKey(let rules, let stapling):
                (proof, self.rules, ocspStapling) = (.rawPublicKeys(.ownKey), rules, stapling)
            case .rawPublicKeys(let keys): proof = .rawPublicKeys(keys.used(.required))
            case .rawPublicKeysOrCertificates(let keys, let rules, let stapling):
                (proof, self.rules, ocspStapling) = (.rawPublicKeys(keys.used(.preferred)), rules, stapling)
            case .preSharedKey(let key): proof = .preSharedKeys(TLSPreSharedKeys(key))
            case .preSharedKeyOrCertificates(let key, let rules, let stapling):
                proof = .preSharedKeys(TLSPreSharedKeys(key).used(.preferred))
                (self.rules, ocspStapling) = (rules, stapling)
            }
        }
    }
}

/// How clients prove their identity to a server, and whether they may resume their sessions.
///
/// ```swift
/// settings.clients = .certificates(.required)
/// settings.clients = .anyone(tickets: .issued(1))
/// ```
public enum TLSClients: Sendable, Hashable {
    /// The server requests no proof. It may send session tickets after a handshake.
    case anyone(tickets: TLSSessionTickets)
    /// The server requests no proof, and accepts early data from clients that resume a session (RFC 8446,
    /// section 2.3). `upTo` is the maximum size in bytes for each client, from 1 to 65,536. `tickets` is the
    /// number of session tickets to issue, from 1 to 8. Their keys belong to this process.
    ///
    /// Early data is delivered before all other data when the handshake is complete, so data that an attacker
    /// recorded and replayed is never delivered. Early data therefore saves time only with a responder, which
    /// replies before the handshake is complete. Each ticket can be used for early data once, and only within
    /// seconds of the time that the client states (RFC 8446, section 8). More than 49,152 uses in 20 seconds
    /// are rejected. Early data is not forward secret: the keys of the tickets, which this process keeps for
    /// two hours, can decrypt recorded data.
    case anyoneWithEarlyData(upTo: Int, tickets: Int = 1, responder: TLSEarlyDataResponder? = nil)
    /// Clients present certificates, whose chains must lead to `TLSSettings.trustRoots` and obey these rules.
    ///
    /// Set `trustRoots` to your own authority. By default it is the system's store, so a certificate from any
    /// of the system's authorities is accepted.
    ///
    /// With tickets, a client that resumes a session does not present its certificate again and does not
    /// prove that it still has the key. The verdict is stored in the ticket. It is valid for one hour at
    /// most, but not longer than the certificate, and a certificate that is revoked during this time is still
    /// accepted. If `trustEvaluation` is `.delegate`, the trust callback is called again, with the client's
    /// own certificate but without its chain. If it is `.manual`, tickets are an error.
    case certificates(TLSClientCertificates, TLSCertificateRules = TLSCertificateRules(), tickets: TLSSessionTickets = .none)
    /// Clients present certificates that the server requests on its program's demand, after the handshake:
    /// see `AsyncSocket.beginClientCertificateRequest(isRequired:)`. No certificate is requested during the
    /// handshake (RFC 8446, section 4.6.2).
    ///
    /// Requires TLS 1.3 and a client that offers post-handshake authentication. Tickets are created before
    /// the first request, so a client that resumes a session is treated as a client without a certificate.
    case certificatesOnRequest(TLSCertificateRules = TLSCertificateRules(), tickets: TLSSessionTickets = .none)
    /// The server requests no proof, and presents the public key of its `identity` without the certificate
    /// (RFC 7250), which its clients must know. A client that does not support raw public keys receives the
    /// certificate instead.
    ///
    /// Requires OpenSSL 3.2 or newer, as do the next three cases. No tickets are issued with raw public keys.
    case anyoneWithOwnRawPublicKey
    /// Clients present certificates. The server presents its public key without the certificate.
    case certificatesWithOwnRawPublicKey(TLSClientCertificates, TLSCertificateRules = TLSCertificateRules())
    /// Clients have one of these public keys. Certificates are not accepted.
    case rawPublicKeys(TLSRawPublicKeys, TLSClientCertificates = .required)
    /// Clients have one of these public keys, or present a certificate. The rules for certificates do not
    /// apply to a client with an expected key.
    case rawPublicKeysOrCertificates(
        TLSRawPublicKeys, TLSClientCertificates = .required, TLSCertificateRules = TLSCertificateRules())
    /// Clients have one of these pre-shared keys, and no other proof is accepted: see `TLSPreSharedKeys` and
    /// `server(preSharedKeys:)`, which also sets `minimumVersion`. The server presents no certificate, so it
    /// needs no identity.
    ///
    /// A server responds to an unknown identity in the same way as to a wrong key, with the alert
    /// `decrypt_error` (`bad_record_mac` in TLS 1.2). This hides which identities exist (RFC 4279, section
    /// 2).
    case preSharedKeys(TLSPreSharedKeys)
    /// Clients have one of these pre-shared keys, or provide no proof. For a client without a key, the server
    /// presents a certificate and may send tickets. Connections with a key provide no tickets. In TLS 1.3, a
    /// client can find out which identities the server has.
    case preSharedKeysOrAnyone(TLSPreSharedKeys, tickets: TLSSessionTickets = .none)
    /// Clients have one of these pre-shared keys, or else present certificates, as in `certificates`. The
    /// rules for certificates do not apply to a client with a key, so the connection is only as safe as the
    /// weaker of the two proofs.
    case preSharedKeysOrCertificates(
        TLSPreSharedKeys, TLSClientCertificates, TLSCertificateRules = TLSCertificateRules(),
        tickets: TLSSessionTickets = .none)

    /// The server requests no proof and sends no tickets.
    public static var anyone: TLSClients { .anyone(tickets: .none) }
}

extension TLSSettingValues {
    /// The proof that a server requires of its clients. Setting a case replaces all parts, so no part of the
    /// previous value remains.
    var clients: TLSClients {
        get {
            switch proof {
            case .certificates: clientsByCertificates
            case .rawPublicKeys(let keys): clients(by: keys)
            case .preSharedKeys(let keys): clients(by: keys)
            }
        }
        set {
            (proof, clientCertificates, rules) = (.certificates, .none, TLSCertificateRules())
            (tickets, earlyDataAcceptance) = (.none, nil)
            switch newValue {
            case .anyone(let tickets): self.tickets = tickets
            case .anyoneWithEarlyData(let limit, let count, let responder):
                tickets = .issued(count)
                earlyDataAcceptance = EarlyDataAcceptance(limit: limit, responder: responder)
            case .certificates(let demand, let rules, let tickets): ask(demand, rules, tickets)
            case .certificatesOnRequest(let rules, let tickets):
                (clientCertificates, self.rules, self.tickets) = (.onRequest, rules, tickets)
            case .anyoneWithOwnRawPublicKey: proof = .rawPublicKeys(.ownKey)
            case .certificatesWithOwnRawPublicKey(let demand, let rules):
                proof = .rawPublicKeys(.ownKey)
                ask(demand, rules)
            case .rawPublicKeys(let keys, let demand):
                proof = .rawPublicKeys(keys.used(.required))
                ask(demand)
            case .rawPublicKeysOrCertificates(let keys, let demand, let rules):
                proof = .rawPublicKeys(keys.used(.preferred))
                ask(demand, rules)
            case .preSharedKeys(let keys): proof = .preSharedKeys(keys.used(.required))
            case .preSharedKeysOrAnyone(let keys, let tickets):
                (proof, self.tickets) = (.preSharedKeys(keys.used(.preferred)), tickets)
            case .preSharedKeysOrCertificates(let keys, let demand, let rules, let tickets):
                proof = .preSharedKeys(keys.used(.preferred))
                ask(demand, rules, tickets)
            }
        }
    }

    private mutating func ask(
        _ demand: TLSClientCertificates, _ rules: TLSCertificateRules = TLSCertificateRules(),
        _ tickets: TLSSessionTickets = .none
    ) {
        (clientCertificates, self.rules, self.tickets) = (TLSCertificateRequest(demand), rules, tickets)
    }

    var demand: TLSClientCertificates { clientCertificates == .optional ? .optional : .required }

    private var clientsByCertificates: TLSClients {
        switch clientCertificates {
        case .none:
            earlyDataAcceptance.map {
                .anyoneWithEarlyData(upTo: $0.limit, tickets: tickets.count, responder: $0.responder)
            } ?? .anyone(tickets: tickets)
        case .onRequest: .certificatesOnRequest(rules, tickets: tickets)
        case .optional, .required: .certificates(demand, rules, tickets: tickets)
        }
    }
}

extension TLSProof {
    func validate(in settings: TLSSettingValues) throws(TLSError) {
        switch self {
        case .certificates: break
        case .rawPublicKeys(let keys): try keys.validate(in: settings)
        case .preSharedKeys(let keys): try keys.validate(in: settings)
        }
    }
}

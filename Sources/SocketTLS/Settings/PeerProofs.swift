/// How a server proves to a client who it is.
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]), ocspStapling: .required)
/// settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// ```
public enum TLSServerProof: Sendable, Hashable {
    /// By certificates, which must also obey these rules.
    case certificates(TLSCertificateRules, ocspStapling: TLSOCSPStapling = .none)
    /// By certificates, while the client shows the public key of its `identity` without the certificate (RFC
    /// 7250), if it is asked. A server that does not take raw public keys gets the certificate nevertheless.
    ///
    /// It needs OpenSSL 3.2 or newer, as the two cases after it do.
    case certificatesWithOwnRawPublicKey(
        TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// By one of these public keys, and not by a certificate: one is refused before it is verified, with
    /// `rawPublicKeyMissing` and the alert `unsupported_certificate`.
    case rawPublicKeys(TLSRawPublicKeys)
    /// By one of these public keys, or by a certificate. A server that has an expected key need not obey any
    /// rule for certificates, names among them.
    case rawPublicKeysOrCertificates(
        TLSRawPublicKeys, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// By this key, which both sides have, and by nothing else: see `TLSPreSharedKey`, and
    /// `client(serverName:preSharedKey:)`, which sets `minimumVersion` too. The client neither shows nor
    /// accepts a certificate, so it needs no roots.
    ///
    /// The trust callback is not asked about a server that has proved to have the key: it has shown no
    /// certificate, so `trustEvaluation` means nothing then. The connection brings no session tickets.
    case preSharedKey(TLSPreSharedKey)
    /// By this key, or else by a certificate. A server that has the key need not obey any rule for
    /// certificates, so the connection is as safe as the weaker of the two ways.
    case preSharedKeyOrCertificates(
        TLSPreSharedKey, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)

    /// By certificates, without further rules.
    public static var certificates: TLSServerProof { .certificates(TLSCertificateRules()) }
}

extension TLSSettingValues {
    /// The proof that a client asks of the server. A case sets all of its parts: no rule is left over from
    /// the proof before.
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
                // A client has no list of keys.
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

extension TLSSettingValues {
    /// The proof that a server asks of its clients. A case sets all of its parts: nothing is left over from
    /// the one before.
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

/// How a server proves its identity to a client.
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]), ocspStapling: .required)
/// settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// ```
public enum TLSServerProof: Sendable, Hashable {
    /// The server presents a certificate, which must also obey these rules.
    case certificates(TLSCertificateRules, ocspStapling: TLSOCSPStapling = .none)
    /// The server has one of these public keys. A certificate is rejected before it is verified, with
    /// `rawPublicKeyMissing` and the alert `unsupported_certificate`.
    ///
    /// Requires OpenSSL 3.2 or newer, as does the next case.
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
    /// The server matches one of these TLSA records (DANE). The rules for certificates apply in addition.
    case dane(TLSDANE, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)

    /// The server presents a certificate, without further rules.
    public static var certificates: TLSServerProof { .certificates(TLSCertificateRules()) }
}

extension TLSSettingValues {
    /// The proof that a client requires from the server. Setting a case replaces all parts, so no rule from
    /// the previous proof remains.
    var serverProof: TLSServerProof {
        get {
            switch proof {
            case .certificates: .certificates(rules, ocspStapling: ocspStapling)
            case .dane(let dane): .dane(dane, rules, ocspStapling: ocspStapling)
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
            case .rawPublicKeys(let keys): proof = .rawPublicKeys(keys.used(.required))
            case .rawPublicKeysOrCertificates(let keys, let rules, let stapling):
                (proof, self.rules, ocspStapling) = (.rawPublicKeys(keys.used(.preferred)), rules, stapling)
            case .preSharedKey(let key): proof = .preSharedKeys(TLSPreSharedKeys(key))
            case .preSharedKeyOrCertificates(let key, let rules, let stapling):
                proof = .preSharedKeys(TLSPreSharedKeys(key).used(.preferred))
                (self.rules, ocspStapling) = (rules, stapling)
            case .dane(let dane, let rules, let stapling): (proof, self.rules, ocspStapling) = (.dane(dane), rules, stapling)
            }
        }
    }
}

/// How clients prove their identity to a server.
///
/// ```swift
/// settings.clients = .certificates(.required)
/// settings.clients = .rawPublicKeys(try TLSRawPublicKeys(expected: keysOfTheDevices))
/// ```
///
/// Session tickets, early data and the form of the server's own key are separate settings: see
/// `TLSSettings.sessionTickets`, `TLSSettings.acceptedEarlyData` and `TLSSettings.presentsRawPublicKey`.
public enum TLSClients: Sendable, Hashable {
    /// The server requests no proof.
    case anyone
    /// Clients present certificates. Their chains must lead to `TLSSettings.trustRoots` and obey these rules.
    ///
    /// Set `trustRoots` to your own authority. By default it is the system's store, so a certificate from any
    /// of the system's authorities is accepted.
    case certificates(TLSClientCertificates, TLSCertificateRules = TLSCertificateRules())
    /// Clients present certificates when the program requests them after the handshake: see
    /// `AsyncSocket.beginClientCertificateRequest(isRequired:)`. No certificate is requested during the
    /// handshake (RFC 8446, section 4.6.2).
    ///
    /// Requires TLS 1.3 and a client that offers post-handshake authentication. Session tickets are created
    /// before the first request, so a client that resumes a session is treated as a client without a
    /// certificate.
    case certificatesOnRequest(TLSCertificateRules = TLSCertificateRules())
    /// Clients have one of these public keys. Certificates are not accepted.
    ///
    /// Requires OpenSSL 3.2 or newer, as does the next case. Neither can be combined with session tickets.
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
    /// 2). Cannot be combined with session tickets.
    case preSharedKeys(TLSPreSharedKeys)
    /// Clients have one of these pre-shared keys, or provide no proof. For a client without a key, the server
    /// presents a certificate. Connections with a key provide no session tickets. In TLS 1.3, a client can
    /// find out which identities the server has.
    case preSharedKeysOrAnyone(TLSPreSharedKeys)
    /// Clients have one of these pre-shared keys, or else present certificates, as in `certificates`. The
    /// rules for certificates do not apply to a client with a key, so the connection is only as safe as the
    /// weaker of the two proofs.
    case preSharedKeysOrCertificates(
        TLSPreSharedKeys, TLSClientCertificates, TLSCertificateRules = TLSCertificateRules())
}

extension TLSSettingValues {
    /// The proof that a server requires from its clients. Setting a case replaces all parts, so no rule from
    /// the previous proof remains.
    var clients: TLSClients {
        get {
            switch proof {
            case .certificates, .dane: clientsByCertificates
            case .rawPublicKeys(let keys): clients(by: keys)
            case .preSharedKeys(let keys): clients(by: keys)
            }
        }
        set {
            (proof, clientCertificates, rules) = (.certificates, .none, TLSCertificateRules())
            switch newValue {
            case .anyone: break
            case .certificates(let demand, let rules): request(demand, rules)
            case .certificatesOnRequest(let rules): (clientCertificates, self.rules) = (.onRequest, rules)
            case .rawPublicKeys(let keys, let demand):
                proof = .rawPublicKeys(keys.used(.required))
                request(demand)
            case .rawPublicKeysOrCertificates(let keys, let demand, let rules):
                proof = .rawPublicKeys(keys.used(.preferred))
                request(demand, rules)
            case .preSharedKeys(let keys): proof = .preSharedKeys(keys.used(.required))
            case .preSharedKeysOrAnyone(let keys): proof = .preSharedKeys(keys.used(.preferred))
            case .preSharedKeysOrCertificates(let keys, let demand, let rules):
                proof = .preSharedKeys(keys.used(.preferred))
                request(demand, rules)
            }
        }
    }

    private mutating func request(_ demand: TLSClientCertificates, _ rules: TLSCertificateRules = TLSCertificateRules()) {
        (clientCertificates, self.rules) = (TLSCertificateRequest(demand), rules)
    }

    var demand: TLSClientCertificates { clientCertificates == .optional ? .optional : .required }

    private var clientsByCertificates: TLSClients {
        switch clientCertificates {
        case .none: .anyone
        case .onRequest: .certificatesOnRequest(rules)
        case .optional, .required: .certificates(demand, rules)
        }
    }
}

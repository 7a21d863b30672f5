extension TLSSettings where Side == TLSServer {
    /// Settings of a server that shows `identity`.
    public static func server(identity: TLSIdentity) -> TLSServerSettings {
        TLSServerSettings(TLSSettingValues(role: .server, identity: identity, bytesBufferedAtUpgrade: .feedToTLS))
    }

    /// Settings of a server that accepts clients by pre-shared keys, and needs no identity of its own. For
    /// keys or certificates set `identity` too, and `clients`.
    ///
    /// TLS 1.3 is the oldest version, as for `client(serverName:preSharedKey:)`.
    public static func server(preSharedKeys: TLSPreSharedKeys) -> TLSServerSettings {
        var settings = TLSServerSettings(TLSSettingValues(role: .server, identity: nil, bytesBufferedAtUpgrade: .feedToTLS))
        settings.clients = .preSharedKeys(preSharedKeys)
        settings.minimumVersion = .tls13
        return settings
    }

    /// A server's identities beside `identity`, each with another kind of key: RSA beside ECDSA, for
    /// instance.
    ///
    /// OpenSSL shows each client one that it can verify, by the signature algorithms that the client names
    /// (RFC 8446, section 4.4.2.2). Two with the same kind of key are an error: all curves of ECDSA are one
    /// kind.
    public var additionalIdentities: [TLSIdentity] {
        get { values.additionalIdentities }
        set { values.additionalIdentities = newValue }
    }

    /// How clients prove who they are, and whether they may resume their sessions: `.anyone` by default, whom
    /// the server does not ask, without tickets. The rules for certificates are a part of it.
    public var clients: TLSClients {
        get { values.clients }
        set { values.clients = newValue }
    }

    /// Other settings for clients that ask for certain names (SNI); nil: these settings for all.
    public var serverNames: TLSServerNames? {
        get { values.serverNames }
        set { values.serverNames = newValue }
    }
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

    private var demand: TLSClientCertificates { clientCertificates == .optional ? .optional : .required }

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

    private func clients(by keys: TLSRawPublicKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch (keys.expectsKeys, clientCertificates, keys.use) {
        case (false, .none, _): .anyoneWithOwnRawPublicKey
        case (false, _, _): .certificatesWithOwnRawPublicKey(demand, rules)
        case (true, _, .required): .rawPublicKeys(given, demand)
        case (true, _, .preferred): .rawPublicKeysOrCertificates(given, demand, rules)
        }
    }

    private func clients(by keys: TLSPreSharedKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch (keys.use, clientCertificates) {
        case (.required, _): .preSharedKeys(given)
        case (.preferred, .none): .preSharedKeysOrAnyone(given, tickets: tickets)
        case (.preferred, _): .preSharedKeysOrCertificates(given, demand, rules, tickets: tickets)
        }
    }
}

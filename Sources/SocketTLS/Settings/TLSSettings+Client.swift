extension TLSSettings where Side == TLSClient {
    /// Settings of a client that expects `serverName`, a host name or an IP address.
    ///
    /// The client verifies the server's certificate for this name, and sends the name by SNI unless it is an
    /// address. Names outside ASCII must be given as A-labels ("xn--…"). One final dot is ignored.
    public static func client(serverName: String) -> TLSClientSettings {
        TLSClientSettings(TLSSettingValues(role: .client(serverName: serverName), identity: nil, bytesBufferedAtUpgrade: .reject))
    }

    /// Settings of a client that expects the host that the program connected to, as if its name or address
    /// were given to `client(serverName:)`.
    ///
    /// With a proxy that is the host behind it. A connection without one, such as that to a path or an
    /// accepted one, needs a name: `startTLS` throws `invalidSettings`.
    public static var client: TLSClientSettings {
        TLSClientSettings(TLSSettingValues(role: .client(serverName: nil), identity: nil, bytesBufferedAtUpgrade: .reject))
    }

    /// Settings of a client that accepts a server because it has the same key, and for no other reason: see
    /// `TLSPreSharedKey`. `TLSSession.preSharedKeyIdentity` shows it.
    ///
    /// No certificate is verified, so `serverName` only tells the server by SNI which of its names is meant.
    /// TLS 1.3 is the oldest version, because a key should not serve two versions (RFC 8446, appendix E.7).
    /// For a server that has only TLS 1.2, set `minimumVersion` and `maximumVersion`.
    public static func client(serverName: String, preSharedKey: TLSPreSharedKey) -> TLSClientSettings {
        var settings = client(serverName: serverName)
        settings.proof = .preSharedKey(preSharedKey)
        settings.minimumVersion = .tls13
        return settings
    }

    /// How the server proves who it is: by certificates, the default, by public keys without certificates, or
    /// by a key that both sides have. The rules for certificates are a part of it.
    public var proof: TLSServerProof {
        get { values.serverProof }
        set { values.serverProof = newValue }
    }

    /// Whether the server's certificate must be for the name in `role`.
    ///
    /// **Dangerous to turn off**: anyone with a valid certificate for *any* name can then pose as the server.
    public var verifiesHostName: Bool {
        get { values.verifiesHostName }
        set { values.verifiesHostName = newValue }
    }

    /// Whether a client lets the server ask for its certificate after the handshake (RFC 8446, section
    /// 4.6.2); false by default.
    ///
    /// Some servers ask when they know what the client wants. The client answers while it reads: with
    /// `identity`, or with no certificate when it has none. Only TLS 1.3 has it.
    public var allowsPostHandshakeAuthentication: Bool {
        get { values.allowsPostHandshakeAuthentication }
        set { values.allowsPostHandshakeAuthentication = newValue }
    }

    /// Bytes that a client sends with its first message, if a session allows it, or else right after the
    /// handshake; nil, the default, for none. Read what they cost: `TLSEarlyData`.
    ///
    /// They leave before anyone could be asked about the server. So they cannot go with a trust callback
    /// (`trustEvaluation`), and they need `resumption`: `startTLS` throws `invalidSettings`.
    public var earlyData: TLSEarlyData? {
        get { values.earlyData }
        set { values.earlyData = newValue }
    }

    /// Which sessions a client resumes, and where it keeps those that servers offer: in the memory of the
    /// process by default.
    ///
    /// A resumed handshake is shorter, and needs no certificate. The verdict on the server's certificates
    /// goes with the session. A session is kept once the verdict is positive; it is resumed only for the same
    /// host, port, server name, trust settings, identity, versions and application protocols, and for seven
    /// days at most. With `trustEvaluation` set to `.delegate` or `.manual` you are asked for a resumed
    /// session too, with the certificates that came first. See `TLSSession.isResumed`.
    public var resumption: TLSResumption {
        get { values.resumption }
        set { values.resumption = newValue }
    }
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

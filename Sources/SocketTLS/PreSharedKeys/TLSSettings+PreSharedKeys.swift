extension TLSSettings {
    /// Settings of a client that accepts a server because it has the same key, and for no other reason: see
    /// `TLSPreSharedKeys`. `TLSSession.preSharedKeyIdentity` shows it.
    ///
    /// No certificate is verified, so `serverName` only tells the server by SNI which of its names is meant.
    /// TLS 1.3 is the oldest version, because a key should not serve two versions (RFC 8446, appendix E.7).
    /// For a server that has only TLS 1.2, set `minimumVersion` and `maximumVersion`.
    public static func client(serverName: String, preSharedKey: TLSPreSharedKey) -> TLSSettings {
        var settings = client(serverName: serverName)
        settings.preSharedKeys = TLSPreSharedKeys(preSharedKey)
        settings.minimumVersion = .tls13
        return settings
    }

    /// Settings of a server that accepts clients by pre-shared keys, and needs no identity of its own unless
    /// the keys are `.preferred`: then set `identity` too.
    ///
    /// TLS 1.3 is the oldest version, as for `client(serverName:preSharedKey:)`.
    public static func server(preSharedKeys: TLSPreSharedKeys) -> TLSSettings {
        var settings = TLSSettings(role: .server, identity: nil, bytesBufferedAtUpgrade: .feedToTLS)
        settings.preSharedKeys = preSharedKeys
        settings.minimumVersion = .tls13
        return settings
    }

    /// There are no certificates, on either side.
    var requiresPreSharedKey: Bool { preSharedKeys?.use == .required }

    func validatePreSharedKeys() throws(TLSError) {
        guard let preSharedKeys else { return }
        switch role {
        case .client:
            guard preSharedKeys.only != nil else {
                throw Self.invalid("a client has one pre-shared key, and not a list or a function")
            }
            switch resumption {
            case .none, .inMemory: break
            case .store, .session: throw Self.invalid("a client with a pre-shared key resumes no sessions")
            }
        case .server:
            if clientCertificates == .onRequest {
                throw Self.invalid("clientCertificates set to .onRequest cannot go with pre-shared keys")
            }
            if requiresPreSharedKey, sessionTicketCount > 0 {
                throw Self.invalid(
                    "sessionTicketCount is for connections with certificates, and the pre-shared keys are required")
            }
        }
        if requiresPreSharedKey {
            if clientCertificates != .none {
                throw Self.invalid("clientCertificates asks for certificates, and the pre-shared keys are required")
            }
            let demands = [
                ("ocspStapling", ocspStapling != .none), ("pins", !pins.isEmpty), ("revocationLists", !revocationLists.isEmpty),
            ]
            if let (name, _) = demands.first(where: \.1) {
                throw Self.invalid("\(name) is for certificates, and the pre-shared key is required")
            }
        }
        if max(minimumVersion, policy.minimumVersion) < .tls13 { try Self.validateForTLS12(preSharedKeys) }
    }

    private static func validateForTLS12(_ keys: TLSPreSharedKeys) throws(TLSError) {
        guard keys.hash == .sha256 else {
            throw invalid("a pre-shared key for SHA-384 is for TLS 1.3, and minimumVersion allows TLS 1.2")
        }
        for key in keys.listed ?? [] {
            guard key.identity.count <= TLSPreSharedKey.identityLimitOfTLS12, !key.identity.contains(0) else {
                throw invalid(
                    "in TLS 1.2, which minimumVersion allows, the identity of a pre-shared key has at most 128 bytes and no zero among them"
                )
            }
        }
    }
}

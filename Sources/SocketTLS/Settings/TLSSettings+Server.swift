extension TLSSettings where Side == TLSServer {
    /// Settings of a server that shows `identity`.
    public static func server(identity: TLSIdentity) -> TLSServerSettings {
        TLSServerSettings(TLSSettingValues(role: .server, identity: identity, bytesBufferedAtUpgrade: .feedToTLS))
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
}

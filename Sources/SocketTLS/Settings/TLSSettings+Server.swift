extension TLSSettings where Side == TLSRole.Server {
    /// Returns settings for a server that presents `identity`.
    public static func server(identity: TLSIdentity) -> TLSServerSettings {
        TLSServerSettings(TLSSettingValues(role: .server, identity: identity, earlyPlaintext: .feedToTLS))
    }

    /// Identities in addition to `identity`, each with a different kind of key, for example RSA in addition
    /// to ECDSA.
    ///
    /// OpenSSL presents to each client an identity that the client can verify, based on the client's
    /// signature algorithms (RFC 8446, section 4.4.2.2). Two identities with the same kind of key are an
    /// error. All ECDSA curves are one kind.
    public var additionalIdentities: [TLSIdentity] {
        get { values.additionalIdentities }
        set { values.additionalIdentities = newValue }
    }

    /// How clients prove their identity. Defaults to `.anyone`: the server requests no proof. The rules for
    /// certificates are part of this value.
    public var clients: TLSClients {
        get { values.clients }
        set { values.clients = newValue }
    }
}

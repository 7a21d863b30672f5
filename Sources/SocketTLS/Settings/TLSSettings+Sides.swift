extension TLSSettings where Side == TLSRole.Client {
    /// Returns settings for a client that expects `serverName`, a host name or an IP address.
    ///
    /// The client verifies the server's certificate for this name, and sends the name with SNI unless it is
    /// an address. Non-ASCII names must be given as A-labels ("xn--…"). One trailing dot is ignored.
    public static func client(serverName: String) -> TLSClientSettings {
        TLSClientSettings(TLSSettingValues(role: .client, serverName: serverName, identity: nil, earlyPlaintext: .reject))
    }

    /// Settings for a client that expects the host that the program connected to, as if its name or address
    /// were passed to `client(serverName:)`.
    ///
    /// Through a proxy, this is the destination host. A connection that was not made to a host, such as an
    /// accepted connection, needs a name: otherwise `startTLS` throws `invalidSettings`.
    public static var client: TLSClientSettings {
        TLSClientSettings(TLSSettingValues(role: .client, identity: nil, earlyPlaintext: .reject))
    }

    /// The name or address that the server must have. If `nil`, it is the host that the program connected to.
    public var serverName: String? {
        get { values.serverName }
        set { values.serverName = newValue }
    }

    /// How the server proves its identity: with certificates (the default), with public keys without
    /// certificates, or with a pre-shared key. The rules for certificates are part of this value.
    public var proof: TLSServerProof {
        get { values.serverProof }
        set { values.serverProof = newValue }
    }

    /// Whether the server's certificate must match `serverName`. Defaults to `true`.
    ///
    /// **Dangerous to turn off**: an attacker with a valid certificate for *any* name can then impersonate
    /// the server.
    public var verifiesHostName: Bool {
        get { values.verifiesHostName }
        set { values.verifiesHostName = newValue }
    }
}

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

extension TLSSettings {
    /// Throws `invalidSettings` or, for a file, `invalidCertificate` if TLS connections cannot use the
    /// settings. A client needs no `serverName` here, because a connection to a host name has that name.
    public func validate() throws(TLSError) { _ = try TLSContext.withoutName(for: values) }
}

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
}

extension TLSSettings where Side == TLSRole.Client {
    /// Returns settings for a client that accepts a server only if both have the same key: see
    /// `TLSPreSharedKey`. After the handshake, `TLSSession.preSharedKeyIdentity` contains the key's identity.
    ///
    /// No certificate is verified, so `serverName` is only sent to the server by SNI. The minimum version is
    /// TLS 1.3 for streams, because a key should not be used with two versions (RFC 8446, appendix E.7), and
    /// DTLS 1.2 for datagrams. For a server that supports only TLS 1.2, set `minimumVersion` and
    /// `maximumVersion`.
    public static func client(serverName: String, preSharedKey: TLSPreSharedKey) -> TLSClientSettings {
        var settings = client(serverName: serverName)
        settings.proof = .preSharedKey(preSharedKey)
        (settings.values.minimumVersion, settings.values.isMinimumForStreams) = (.tls13, true)
        return settings
    }
}

extension TLSSettings where Side == TLSRole.Server {
    /// Returns settings for a server that accepts clients with pre-shared keys and needs no identity. To
    /// accept clients with either keys or certificates, set `identity` and `clients` too.
    ///
    /// The minimum version is TLS 1.3, as in `client(serverName:preSharedKey:)`.
    public static func server(preSharedKeys: TLSPreSharedKeys) -> TLSServerSettings {
        var settings = TLSServerSettings(TLSSettingValues(role: .server, identity: nil, earlyPlaintext: .feedToTLS))
        settings.clients = .preSharedKeys(preSharedKeys)
        (settings.values.minimumVersion, settings.values.isMinimumForStreams) = (.tls13, true)
        return settings
    }
}

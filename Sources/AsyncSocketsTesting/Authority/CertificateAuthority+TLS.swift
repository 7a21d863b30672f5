public import SocketTLS

extension CertificateAuthority {
    /// The root as the only certificate to trust.
    public var roots: TrustRoots {
        get throws(TLSError) { .certificates([try Certificate(pem: rootPEM)]) }
    }

    /// Settings of a client that trusts this authority, and no one else, for `serverName`.
    public func clientSettings(serverName: String) throws(TLSError) -> TLSSettings {
        var settings = TLSSettings.client(serverName: serverName)
        settings.trustRoots = try roots
        return settings
    }
}

extension IssuedCertificate {
    /// The chain and the key, ready for `TLSSettings`.
    public func identity() throws(TLSError) -> TLSIdentity {
        try TLSIdentity(
            certificateChain: Certificate.certificates(pem: certificateChainPEM), privateKey: PrivateKey(pem: privateKeyPEM))
    }
}

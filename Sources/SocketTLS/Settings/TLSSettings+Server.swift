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

    /// The session tickets that the server issues, which let clients resume their sessions. Defaults to
    /// `.none`.
    ///
    /// A client that resumes a session does not present its certificate again and does not prove that it
    /// still has the key. The verdict is stored in the ticket. The ticket is valid for at most one hour, and
    /// no longer than the certificate. A certificate that is revoked during this time is still accepted. If
    /// `trustEvaluation` is `.delegate`, the trust callback is called again, with the client's own
    /// certificate but without its chain. If it is `.manual` and certificates are requested during the
    /// handshake, enabling tickets is an error, as it is with raw public keys and with `clients` set to
    /// `.preSharedKeys`.
    public var sessionTickets: TLSSessionTickets {
        get { values.tickets }
        set { values.tickets = newValue }
    }
}

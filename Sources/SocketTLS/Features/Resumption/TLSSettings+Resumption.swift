extension TLSSettings where Side == TLSRole.Client {
    /// Which sessions the client resumes, and where it stores the sessions that servers offer. Defaults
    /// to `.inMemory`, the memory of this process.
    ///
    /// A resumed handshake is shorter and needs no certificate. The verdict on the server's certificates
    /// is stored with the session. A session is stored only after a positive verdict. It is resumed only
    /// for the same host, port, server name, trust settings, identity, versions and application
    /// protocols, and for seven days at most. If `trustEvaluation` is `.delegate` or `.manual`, the trust
    /// callback is also called for a resumed session, with the certificates from the original handshake.
    /// See `TLSSession.isResumed`.
    public var resumption: TLSResumption {
        get { values.resumption }
        set { values.resumption = newValue }
    }
}

extension TLSSettingValues {
    func requireNoSessionOfOthers() throws(TLSError) {
        switch resumption {
        case .none, .inMemory: break
        case .store, .session:
            throw Self.invalid("raw public keys and pre-shared keys do not support resumption: set it to .none")
        }
    }
}

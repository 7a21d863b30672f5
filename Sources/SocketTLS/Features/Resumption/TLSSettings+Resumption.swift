extension TLSSettings where Side == TLSClient {
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
    func requireNoSessionOfOthers() throws(TLSError) {
        switch resumption {
        case .none, .inMemory: break
        case .store, .session:
            throw Self.invalid("a client resumes no sessions with raw public or pre-shared keys: set resumption to .none")
        }
    }
}

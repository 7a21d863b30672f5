extension TLSSettings where Side == TLSRole.Client {
    /// Bytes that the client sends with its first message if a session allows it, or else immediately after
    /// the handshake. Defaults to `nil`, which sends no early data. `TLSEarlyData` describes the risks.
    ///
    /// Early data is sent before a trust callback could reject the server, so `trustEvaluation` must be
    /// `.builtIn`. `resumption` must not be `.none`, and `maximumVersion` must allow TLS 1.3. Otherwise
    /// `startTLS` throws `invalidSettings`.
    public var earlyData: TLSEarlyData? {
        get { values.earlyData }
        set { values.earlyData = newValue }
    }
}

extension TLSSettings where Side == TLSRole.Server {
    /// The early data that the server accepts. Defaults to `nil`: no early data is accepted.
    ///
    /// Requires `clients` set to `.anyone`, `sessionTickets` with keys of this process, TLS 1.3, and no
    /// `presentsRawPublicKey`. Otherwise `startTLS` throws `invalidSettings`.
    public var acceptedEarlyData: TLSAcceptedEarlyData? {
        get { values.acceptedEarlyData }
        set { values.acceptedEarlyData = newValue }
    }
}

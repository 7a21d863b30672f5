extension TLSSettingValues {
    func validateEarlyData() throws(TLSError) {
        switch role {
        case .client: try validateEarlyDataOfClient()
        case .server: try validateEarlyDataOfServer()
        }
    }

    private func validateEarlyDataOfServer() throws(TLSError) {
        guard let acceptedEarlyData else { return }
        try Self.validate(
            acceptedEarlyData.maximumBytes, in: 1...TLSEarlyData.byteLimit, "acceptedEarlyData.maximumBytes")
        // Early data arrives before a client can prove its identity.
        guard proof == .certificates, clientCertificates == .none, certificateType == .x509 else {
            throw Self.invalid("acceptedEarlyData requires clients to be .anyone and presentsRawPublicKey to be false")
        }
        switch tickets {
        case .none:
            throw Self.invalid("acceptedEarlyData requires session tickets: set sessionTickets to .issued(1)")
        // Other processes could accept the same early data once each.
        case .issued(_, .some):
            throw Self.invalid("acceptedEarlyData cannot be combined with shared ticket keys: set sessionTickets without keys")
        case .issued(_, nil): break
        }
        try requireTLS13("acceptedEarlyData")
    }

    private func validateEarlyDataOfClient() throws(TLSError) {
        guard let earlyData else { return }
        try Self.validate(earlyData.bytes.count, in: 1...TLSEarlyData.byteLimit, "the size of earlyData (in bytes)")
        if resumption == .none {
            throw Self.invalid("earlyData requires session resumption, but resumption is .none: set it to .inMemory")
        }
        if trustEvaluation != .builtIn {
            throw Self.invalid("earlyData is sent before the trust callback can decide: set trustEvaluation to .builtIn")
        }
        if let name = earlyData.applicationProtocol {
            guard applicationProtocols.contains(name) else {
                throw Self.invalid(
                    "earlyData is for the protocol \"\(name.printable)\", but applicationProtocols does not contain it")
            }
        } else if applicationProtocols.count > 1 {
            throw Self.invalid("earlyData has no applicationProtocol: set it to one of applicationProtocols")
        }
        try requireTLS13("earlyData")
    }

    private func requireTLS13(_ setting: String) throws(TLSError) {
        if let maximumVersion, maximumVersion < .tls13 {
            throw Self.invalid("\(setting) requires TLS 1.3, but maximumVersion is \(maximumVersion)")
        }
    }
}

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

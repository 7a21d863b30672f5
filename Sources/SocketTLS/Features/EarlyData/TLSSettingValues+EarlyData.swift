extension TLSSettings where Side == TLSClient {
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

extension TLSSettingValues {
    func validateEarlyData() throws(TLSError) {
        switch role {
        case .client: try validateEarlyDataOfClient()
        case .server: try validateEarlyDataOfServer()
        }
    }

    private func validateEarlyDataOfServer() throws(TLSError) {
        guard let earlyDataAcceptance else { return }
        try Self.validate(
            earlyDataAcceptance.limit, in: 1...TLSEarlyData.byteLimit, "the early data limit for clients (in bytes)")
        try requireTLS13("early data from clients")
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

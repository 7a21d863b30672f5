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
            earlyDataAcceptance.limit, in: 1...TLSEarlyData.byteLimit, "the number of bytes of early data of clients")
        try requireTLS13("early data of clients")
    }

    private func validateEarlyDataOfClient() throws(TLSError) {
        guard let earlyData else { return }
        try Self.validate(earlyData.bytes.count, in: 1...TLSEarlyData.byteLimit, "the number of bytes of earlyData")
        if resumption == .none {
            throw Self.invalid("earlyData needs a session, and resumption is .none: set it to .inMemory")
        }
        if trustEvaluation != .builtIn {
            throw Self.invalid("earlyData leaves before the trust callback is asked: set trustEvaluation to .builtIn")
        }
        if let name = earlyData.applicationProtocol {
            guard applicationProtocols.contains(name) else {
                throw Self.invalid(
                    "earlyData is for the protocol \"\(name.printable)\", which applicationProtocols does not name")
            }
        } else if applicationProtocols.count > 1 {
            throw Self.invalid("earlyData does not say for which of the applicationProtocols it is: set its applicationProtocol")
        }
        try requireTLS13("earlyData")
    }

    private func requireTLS13(_ setting: String) throws(TLSError) {
        if let maximumVersion, maximumVersion < .tls13 {
            throw Self.invalid("\(setting) needs TLS 1.3, and maximumVersion is \(maximumVersion)")
        }
    }
}

extension TLSSettings where Side == TLSClient {
    /// Bytes that a client sends with its first message, if a session allows it, or else right after the
    /// handshake; nil, the default, for none. Read what they cost: `TLSEarlyData`.
    ///
    /// They leave before anyone could be asked about the server. So they cannot go with a trust callback
    /// (`trustEvaluation`), and they need `resumption`: `startTLS` throws `invalidSettings`.
    public var earlyData: TLSEarlyData? {
        get { values.earlyData }
        set { values.earlyData = newValue }
    }
}

extension TLSSettingValues {
    /// Throws `invalidSettings` for early data that cannot be protected, sent or told apart.
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

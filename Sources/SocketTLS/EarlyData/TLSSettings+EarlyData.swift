extension TLSSettings {
    /// Throws `invalidSettings` for early data that cannot be protected, sent or told apart.
    func validateEarlyData() throws(TLSError) {
        switch role {
        case .client: try validateEarlyDataOfClient()
        case .server: try validateEarlyDataOfServer()
        }
    }

    private func validateEarlyDataOfServer() throws(TLSError) {
        if earlyData != nil { throw Self.invalid("earlyData is for clients") }
        try Self.validate(maximumEarlyDataBytes, in: 0...TLSEarlyData.byteLimit, "maximumEarlyDataBytes")
        guard maximumEarlyDataBytes > 0 else {
            if earlyDataResponder != nil { throw Self.invalid("earlyDataResponder needs maximumEarlyDataBytes above 0") }
            return
        }
        if sessionTicketCount == 0 { throw Self.invalid("maximumEarlyDataBytes needs a sessionTicketCount above 0") }
        if ticketKeys != nil {
            throw Self.invalid("with ticketKeys, early data could be replayed to the servers that share them")
        }
        if clientCertificates != .none {
            throw Self.invalid("early data comes before a client is authenticated: clientCertificates must be .none")
        }
        try requireTLS13("maximumEarlyDataBytes")
    }

    private func validateEarlyDataOfClient() throws(TLSError) {
        if maximumEarlyDataBytes != 0 { throw Self.invalid("maximumEarlyDataBytes is for servers") }
        if earlyDataResponder != nil { throw Self.invalid("earlyDataResponder is for servers") }
        guard let earlyData else { return }
        try Self.validate(earlyData.bytes.count, in: 1...TLSEarlyData.byteLimit, "the number of bytes of earlyData")
        if resumption == .none { throw Self.invalid("earlyData needs a session, and resumption is .none") }
        if trustEvaluation != .builtIn {
            throw Self.invalid("earlyData leaves before the trust callback is asked: trustEvaluation must be .builtIn")
        }
        if let name = earlyData.applicationProtocol {
            guard applicationProtocols.contains(name) else {
                throw Self.invalid(
                    "earlyData is for the protocol \"\(name.printable)\", which applicationProtocols does not name")
            }
        } else if applicationProtocols.count > 1 {
            throw Self.invalid("earlyData does not say for which of the applicationProtocols it is")
        }
        try requireTLS13("earlyData")
    }

    private func requireTLS13(_ setting: String) throws(TLSError) {
        if let maximumVersion, maximumVersion < .tls13 { throw Self.invalid("\(setting) needs TLS 1.3") }
    }
}

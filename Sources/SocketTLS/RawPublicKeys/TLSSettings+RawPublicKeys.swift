internal import COpenSSL

extension TLSSettings {
    /// The peer may show no certificate.
    var requiresRawPublicKey: Bool {
        guard let rawPublicKeys else { return false }
        return rawPublicKeys.expectsKeys && rawPublicKeys.use == .required
    }

    func validateRawPublicKeys() throws(TLSError) {
        guard let rawPublicKeys else { return }
        try Self.requireRawPublicKeys()
        if preSharedKeys != nil { throw Self.invalid("rawPublicKeys and preSharedKeys exclude each other") }
        if !rawPublicKeys.expectsKeys, !rawPublicKeys.showsOwnKey {
            throw Self.invalid("rawPublicKeys expects no key and shows none")
        }
        if rawPublicKeys.showsOwnKey, identity == nil { throw Self.invalid("to show a raw public key takes an identity") }
        switch role {
        case .client:
            switch resumption {
            case .none, .inMemory: break
            case .store, .session: throw Self.invalid("a client with rawPublicKeys resumes no sessions")
            }
            if earlyData != nil { throw Self.invalid("earlyData needs a session, and a client with rawPublicKeys resumes none") }
            if allowsPostHandshakeAuthentication {
                throw Self.invalid("rawPublicKeys and allowsPostHandshakeAuthentication exclude each other")
            }
        case .server:
            if sessionTicketCount > 0 { throw Self.invalid("a server with rawPublicKeys issues no tickets") }
            if requestsClientCertificates {
                throw Self.invalid("rawPublicKeys and clientCertificates set to .onRequest exclude each other")
            }
            if rawPublicKeys.expectsKeys, clientCertificates == .none {
                throw Self.invalid("rawPublicKeys expects keys of clients, and clientCertificates asks them for nothing")
            }
        }
        try validateRulesForCertificates()
    }

    private func validateRulesForCertificates() throws(TLSError) {
        guard requiresRawPublicKey else { return }
        let demands = [
            ("ocspStapling", ocspStapling != .none), ("pins", !pins.isEmpty), ("revocationLists", !revocationLists.isEmpty),
        ]
        if let (name, _) = demands.first(where: \.1) {
            throw Self.invalid("\(name) is for certificates, and the raw public key is required")
        }
    }

    private static func requireRawPublicKeys() throws(TLSError) {
        if TLSRawPublicKeys.isSupported { return }
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? "another"
        throw invalid("rawPublicKeys needs OpenSSL 3.2 or newer, and the one that is loaded is \(version)")
    }
}

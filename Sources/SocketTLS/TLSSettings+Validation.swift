internal import FoundationEssentials

extension TLSSettings {
    /// Throws `invalidSettings` for the first setting that cannot be used. Certificates and keys were checked
    /// when they were made.
    func validate() throws(TLSError) {
        try validateRole()
        try validateVersions()
        try validateApplicationProtocols()
        try validateTickets()
        try validatePreSharedKeys()
        try validateRawPublicKeys()
        try validateEarlyData()
        try Self.validate(maximumCertificateChainBytes, in: 1024...1_048_576, "maximumCertificateChainBytes")
        try Self.validate(maximumCertificateChainLength, in: 1...100, "maximumCertificateChainLength")
        try Self.validate(handshakeTimeout, "handshakeTimeout")
        try Self.validate(trustTimeout, "trustTimeout")
        if let verificationTime, !(abs(verificationTime.timeIntervalSince1970) < 1e11) {
            throw Self.invalid("verificationTime is too far away")
        }
        if let pin = pins.first(where: { $0.count != 32 }) {
            throw Self.invalid("a pin must have the 32 bytes of SHA-256, and one has \(pin.count)")
        }
        if case .certificates(let roots) = trustRoots, roots.isEmpty, verifiesPeer, !requiresPreSharedKey, !requiresRawPublicKey {
            throw Self.invalid("trustRoots is an empty list, so that no certificate could ever be trusted")
        }
    }

    /// Whether this side asks the peer for a certificate.
    var verifiesPeer: Bool {
        switch role {
        case .client: true
        case .server: clientCertificates != .none
        }
    }

    private func validateRole() throws(TLSError) {
        switch role {
        case .client(let serverName):
            _ = try Self.name(serverName)
            if clientCertificates != .none { throw Self.invalid("clientCertificates is for servers") }
            if !additionalIdentities.isEmpty { throw Self.invalid("additionalIdentities is for servers") }
            if serverNames != nil { throw Self.invalid("serverNames is for servers") }
        case .server:
            if ocspStapling != .none { throw Self.invalid("ocspStapling is for clients") }
            if allowsPostHandshakeAuthentication { throw Self.invalid("allowsPostHandshakeAuthentication is for clients") }
            if identity == nil, !requiresPreSharedKey { throw Self.invalid("a server needs an identity") }
            try validateKindsOfKeys()
        }
    }

    /// Checks the name that a client expects.
    static func name(_ serverName: String?) throws(TLSError) -> ServerName {
        guard let serverName else {
            throw invalid("the connection was not made to a host, so client(serverName:) must say which name to expect")
        }
        return try ServerName(serverName)
    }

    /// OpenSSL keeps one identity for each kind of key: a second one would replace the first silently.
    private func validateKindsOfKeys() throws(TLSError) {
        guard let identity, !additionalIdentities.isEmpty else { return }
        var kinds: Set<String> = []
        for other in [identity] + additionalIdentities where !kinds.insert(other.privateKey.kind).inserted {
            throw Self.invalid("additionalIdentities has two identities with a key of the kind \(other.privateKey.kind)")
        }
    }

    private func validateVersions() throws(TLSError) {
        let oldest = max(minimumVersion, policy.minimumVersion)
        if let maximumVersion, oldest > maximumVersion {
            throw Self.invalid("minimumVersion \(oldest) is newer than maximumVersion \(maximumVersion)")
        }
    }

    private func validateApplicationProtocols() throws(TLSError) {
        var length = 0
        for name in applicationProtocols {
            guard (1...255).contains(name.utf8.count) else {
                throw Self.invalid(
                    "an application protocol must have 1 to 255 bytes, and \"\(name.prefix(32))\" has \(name.utf8.count)")
            }
            length += 1 + name.utf8.count
        }
        guard length <= 0xFFFF - 2 else { throw Self.invalid("applicationProtocols has more than 65,533 bytes") }
        guard Set(applicationProtocols).count == applicationProtocols.count else {
            throw Self.invalid("applicationProtocols names a protocol twice")
        }
    }

    private func validateTickets() throws(TLSError) {
        guard (0...8).contains(sessionTicketCount) else {
            throw Self.invalid("sessionTicketCount is \(sessionTicketCount), and must be from 0 to 8")
        }
        guard sessionTicketCount > 0 else {
            if ticketKeys != nil { throw Self.invalid("ticketKeys needs a sessionTicketCount above 0") }
            return
        }
        if role != .server { throw Self.invalid("sessionTicketCount is for servers") }
        if clientCertificates == .optional || clientCertificates == .required {
            guard resumesClientCertificates else {
                throw Self.invalid(
                    "a server that asks for client certificates issues tickets only with resumesClientCertificates")
            }
            guard trustEvaluation != .manual else {
                throw Self.invalid(
                    "with trustEvaluation .manual no verdict goes with a ticket, as resumesClientCertificates wants")
            }
        }
    }

    static func validate(_ value: Int, in range: ClosedRange<Int>, _ name: String) throws(TLSError) {
        guard range.contains(value) else {
            throw invalid("\(name) is \(value), and must be from \(range.lowerBound) to \(range.upperBound)")
        }
    }

    private static func validate(_ time: Duration, _ name: String) throws(TLSError) {
        guard time > .zero else {
            throw invalid("\(name) is \(time), and must be more than zero")
        }
    }

    static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The TLS settings cannot be used: \(complaint).", operation: "TLSSettings")
    }
}

extension ProxyHeader: CustomStringConvertible {
    /// A description such as
    /// `192.0.2.1:4000 to 198.51.100.7:443, host "example.org", TLSv1.3, client certificate "alice"`.
    ///
    /// Text from the header is quoted, with control characters escaped.
    public var description: String {
        var parts = [way]
        if transport == .datagram { parts.append("datagrams") }
        if let authority { parts.append("host \(authority.debugDescription)") }
        if let clientTLS, clientTLS.flags.contains(.usesTLS) { parts += clientTLS.facts }
        return parts.joined(separator: ", ")
    }

    private var way: String {
        guard let source else { return isLocal ? "a connection from the proxy itself" : "an unknown client" }
        return destination.map { "\(source) to \($0)" } ?? "\(source)"
    }
}

extension ProxyHeader.ClientTLS {
    fileprivate var facts: [String] {
        // The sender controls the version text too.
        let version = version.map { $0.allSatisfy { $0.isLetter || $0.isNumber || $0 == "." } ? $0 : $0.debugDescription }
        let name = commonName.map { " \($0.debugDescription)" } ?? ""
        guard flags.isSuperset(of: .presentedCertificate) || flags.isSuperset(of: .presentedCertificateInSession) else {
            return [version ?? "TLS"]
        }
        return [version ?? "TLS", "\(hasVerifiedCertificate ? "" : "unverified ")client certificate\(name)"]
    }
}

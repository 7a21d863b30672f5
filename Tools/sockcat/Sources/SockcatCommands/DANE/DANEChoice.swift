internal import AsyncSockets

/// Where the TLSA records of a server come from.
enum DANEChoice: Sendable, Equatable {
    /// The server is not authenticated by TLSA records.
    case none
    /// The user passed all records of the server.
    case records([TLSARecord])
    /// The records are looked up for each connection, and must exist.
    case lookUp

    /// Returns the records of a server, or `nil` if it is not authenticated by records.
    ///
    /// - Parameter serverName: The name that the user expects instead of the endpoint's host, if any.
    /// - Throws: A failure if the records cannot be looked up, or if there are none.
    func records(
        of endpoint: Endpoint, serverName: String?, isDatagram: Bool, resolver: Resolver = .system
    ) async throws -> ServerRecords? {
        switch self {
        case .none: nil
        case .records(let records):
            ServerRecords(baseDomain: try Self.hostName(of: endpoint, serverName), records: records)
        case .lookUp: try await Self.lookUp(endpoint, serverName, isDatagram, resolver)
        }
    }

    private static func lookUp(
        _ endpoint: Endpoint, _ serverName: String?, _ isDatagram: Bool, _ resolver: Resolver
    ) async throws -> ServerRecords {
        let (host, port) = try owner(of: endpoint, serverName)
        switch try await resolver.tlsaRecords(of: host, port: port, isDatagram: isDatagram) {
        case .found(let records): return records
        case .none: throw Self.missing("there are no TLSA records for port \(port) of \"\(host)\"")
        case .unsigned:
            throw Self.missing("the DNS records of \"\(host)\" are not signed, so it has no valid TLSA records")
        }
    }

    /// Returns the host and the port for the look-up of records.
    static func owner(of endpoint: Endpoint, _ serverName: String?) throws -> (host: DNSName, port: UInt16) {
        let host = try DNSName(try hostName(of: endpoint, serverName))
        guard case .host(_, let port) = endpoint else {
            throw Failure.usage("\"\(endpoint)\" has no port, so it has no TLSA records", advice: "pass the records with --tlsa")
        }
        return (host, port)
    }

    private static func missing(_ message: String) -> Failure { Failure(message, status: .untrusted) }

    /// Records belong to a name, and an address has no records.
    private static func hostName(of endpoint: Endpoint, _ serverName: String?) throws -> String {
        guard let name = serverName ?? endpoint.hostName, !CertificateName.isAddress(name) else {
            throw Failure.usage(
                "TLSA records belong to a host name, and \"\(serverName ?? "\(endpoint)")\" is not a host name",
                advice: "pass the host name of the server with --sni")
        }
        return name
    }
}

/// All TLSA records of one server, with the names that its certificate may have.
struct ServerRecords: Sendable, Equatable {
    /// The TLSA base domain: the host name that owns the records (RFC 7671, section 7).
    let baseDomain: String
    let records: [TLSARecord]
    var additionalNames: [String] = []
    /// Whether PKIX usages are usable, which they are not for mail between servers (RFC 7672, 3.1.3).
    var usesPKIXRecords = true

    /// The rule for the library: a server without a matching record is rejected.
    var rule: TLSDANE {
        var rule = TLSDANE(records, policy: .required, additionalNames: additionalNames)
        rule.usesPKIXRecords = usesPKIXRecords
        return rule
    }
}

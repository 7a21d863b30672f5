internal import AsyncSockets

/// A domain. The DNS names its servers.
struct ServiceDomain: Sendable, Equatable, CustomStringConvertible {
    enum Service: Sendable, Equatable {
        /// The servers that receive mail: MX records, or the domain itself (RFC 5321, section 5.1).
        case mail
        /// The servers of a service such as "xmpp-server": SRV records (RFC 2782).
        case named(String)
    }

    let service: Service
    let domain: DNSName
    /// The STARTTLS protocol that the user chose. If `nil`, it depends on the service.
    var startTLS: StartTLSName?

    /// - Parameter service: The name of a service in SRV records, with or without an underscore.
    init(service: String, domain: String, startTLS: StartTLSName?) throws {
        let name = service.hasPrefix("_") ? String(service.dropFirst()) : service
        guard name.utf8.count < 63, CertificateName.isHostName(name), !name.contains(".") else {
            throw Failure.usage("\"\(service)\" is not a service", advice: "write a name such as xmpp-server or imaps")
        }
        (self.service, self.domain, self.startTLS) = (.named(name.lowercased()), try DNSName(domain), startTLS)
    }

    /// Mail servers receive mail with SMTP.
    init(mail domain: String, startTLS: StartTLSName?) throws {
        (service, self.domain, self.startTLS) = (.mail, try DNSName(domain), startTLS ?? .smtp)
    }

    /// The most servers of one domain.
    private static let serverLimit = 50

    var description: String {
        switch service {
        case .mail: "mail servers of \(domain)"
        case .named(let name): "\(name) servers of \(domain)"
        }
    }

    /// Looks up the servers, most preferred first. A record that names no host becomes a target that fails.
    ///
    /// - Throws: A failure if the look-up failed, or if the domain has no servers.
    func servers(_ resolver: Resolver) async throws -> [InspectionTarget] {
        let found =
            switch service {
            case .mail: try await mailServers(resolver)
            case .named(let name): try await servers(of: name, resolver)
            }
        guard found.count <= Self.serverLimit else {
            throw Failure("there are \(found.count) \(self), but at most \(Self.serverLimit) are inspected")
        }
        return found
    }

    private func mailServers(_ resolver: Resolver) async throws -> [InspectionTarget] {
        let answer = try await resolver.answer(domain, .mx)
        let exchangers = answer.records.compactMap { data -> (rank: Int, host: DNSName)? in
            if case .mailExchanger(let preference, let host) = data { (Int(preference), host) } else { nil }
        }
        if exchangers.isEmpty {
            return [target(domain, port: 25, ServerOrigin(domain, .mailDomain, answer.isAuthentic))]
        }
        // RFC 7505.
        if exchangers.count == 1, exchangers[0].host.isRoot {
            throw Failure("\"\(domain)\" accepts no mail: it has an MX record without a host", status: .connectFailed)
        }
        return exchangers.sorted { ($0.rank, $0.host.description) < ($1.rank, $1.host.description) }.map {
            target($0.host, port: 25, ServerOrigin(domain, .mailExchanger(preference: $0.rank), answer.isAuthentic))
        }
    }

    private func servers(of service: String, _ resolver: Resolver) async throws -> [InspectionTarget] {
        let name = try domain.prefixed(by: "_\(service)", "_tcp")
        let answer = try await resolver.answer(name, .srv)
        let servers = answer.records.compactMap { data -> (rank: (Int, Int, String), host: DNSName, port: UInt16)? in
            guard case .service(let priority, let weight, let port, let host) = data else { return nil }
            return ((Int(priority), -Int(weight), host.description), host, port)
        }
        guard !servers.isEmpty else { throw Failure("there are no SRV records for \"\(name)\"", status: .connectFailed) }
        // RFC 2782.
        if servers.count == 1, servers[0].host.isRoot {
            throw Failure("\"\(domain)\" does not provide the service \"\(service)\"", status: .connectFailed)
        }
        return servers.sorted { $0.rank < $1.rank }.map {
            let record = ServerOrigin.Record.service(priority: $0.rank.0, weight: -$0.rank.1)
            return target($0.host, port: $0.port, ServerOrigin(domain, record, answer.isAuthentic))
        }
    }

    private func target(_ host: DNSName, port: UInt16, _ origin: ServerOrigin) -> InspectionTarget {
        guard let name = host.hostName else {
            let failure = Failure("a record of \"\(domain)\" names \"\(host)\", which is not a host name", status: .connectFailed)
            return .unresolved("\(self)", failure)
        }
        guard port != 0 else {
            let failure = Failure("a record of \"\(domain)\" names \"\(name)\" without a port", status: .connectFailed)
            return .unresolved("\(self)", failure)
        }
        var target = ServerTarget(endpoint: .host(name, port: port), startTLS: startTLS ?? usualStartTLS, origin: origin)
        // The host of a service may change, but not the domain (RFC 6125, section 6.2.1).
        if case .named = service { target.serverName = domain.description }
        return .server(target)
    }

    /// The protocol of a service, or `nil` for TLS from the first byte.
    private var usualStartTLS: StartTLSName? {
        switch service {
        case .mail: .smtp
        case .named("submission"): .smtp
        case .named("xmpp-client"): .xmpp
        case .named("imap"), .named("pop3"), .named("sieve"), .named("xmpp-server"), .named("ldap"), .named("nntp"),
            .named("ftp"), .named("irc"), .named("lmtp"):
            StartTLSName(argument: name)
        case .named: nil
        }
    }

    private var name: String { if case .named(let name) = service { name } else { "smtp" } }
}

/// The record that named a server.
struct ServerOrigin: Equatable, Sendable {
    let domain: DNSName
    let record: Record
    /// Whether DNSSEC has validated the record. Otherwise an attacker can replace the server.
    let isSigned: Bool

    enum Record: Equatable, Sendable, CustomStringConvertible {
        case mailExchanger(preference: Int)
        /// There is no MX record, so the domain is its own mail server.
        case mailDomain
        case service(priority: Int, weight: Int)

        var description: String {
            switch self {
            case .mailExchanger(let preference): "MX \(preference)"
            case .mailDomain: "no MX record"
            case .service(let priority, let weight): "SRV \(priority) \(weight)"
            }
        }

        /// The type of record that names servers.
        var type: DNSType {
            switch self {
            case .mailExchanger, .mailDomain: .mx
            case .service: .srv
            }
        }
    }

    init(_ domain: DNSName, _ record: Record, _ isSigned: Bool) {
        (self.domain, self.record, self.isSigned) = (domain, record, isSigned)
    }

    var report: OriginReport {
        OriginReport(domain: domain.description, record: record.description, isSigned: isSigned)
    }
}

/// The record that named a server, in a report.
struct OriginReport: Codable, Equatable, Sendable {
    var domain: String
    /// The type of the record and its priority, such as "MX 10".
    var record: String
    var isSigned: Bool
}

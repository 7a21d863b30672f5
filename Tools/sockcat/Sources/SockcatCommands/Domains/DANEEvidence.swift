internal import AsyncSockets

/// What the DNS says about a server, before the server is contacted.
struct DANEEvidence: Sendable {
    /// The records that the server must match.
    var records: ServerRecords?
    /// What is known if there are no records.
    var report: DANEReport?
    var problems: [Problem] = []

    /// Whether the server may be trusted, and receive the client's certificate, if its certificate is valid.
    var permitsTrust: Bool { !problems.contains { $0.severity == .error } }

    /// Finds the records of a server. Failures are part of the result: the server is then inspected without
    /// records, but is not trusted.
    ///
    /// - Throws: A failure if the choices are not possible for the server.
    static func of(
        _ target: ServerTarget, _ choice: DANEChoice, within timeout: Duration, resolver: Resolver = .system
    ) async throws -> DANEEvidence {
        switch choice {
        case .records:
            return DANEEvidence(
                records: try await choice.records(
                    of: target.endpoint, serverName: target.serverName, isDatagram: target.isDatagram))
        case .none where target.origin == nil: return DANEEvidence()
        case .none, .lookUp: return try await lookUp(target, isRequired: choice == .lookUp, timeout, resolver)
        }
    }

    private static func lookUp(
        _ target: ServerTarget, isRequired: Bool, _ timeout: Duration, _ resolver: Resolver
    ) async throws -> DANEEvidence {
        guard let origin = target.origin, !origin.isSigned else {
            return try await lookUpRecords(target, isRequired, timeout, resolver)
        }
        let type = origin.record.type
        // RFC 7673, section 3.1: records of a host that an attacker may have chosen prove nothing.
        if isRequired || type == .srv {
            let message = "the \(type) records of \"\(origin.domain)\" are not signed, so its servers have no valid TLSA records"
            return absent(DANEReport(.unsigned), message, isRequired)
        }
        // RFC 7672, section 2.2.1: the server must still match its records.
        let message = "the \(type) records of \"\(origin.domain)\" are not signed, so an attacker can replace the server"
        var evidence = try await lookUpRecords(target, isRequired, timeout, resolver)
        evidence.problems.append(.warning(.unsignedOrigin, message))
        return evidence
    }

    /// Looks up the records of a server, however its name was found.
    private static func lookUpRecords(
        _ target: ServerTarget, _ isRequired: Bool, _ timeout: Duration, _ resolver: Resolver
    ) async throws -> DANEEvidence {
        let name = target.origin == nil ? target.expectedName : target.endpoint.hostName
        let endpoint: (host: DNSName, port: UInt16)
        do {
            endpoint = try DANEChoice.owner(of: target.endpoint, name)
        } catch {
            return absent(DANEReport(.noRecords), Failure(error).message, isRequired)
        }
        do {
            let result = try await Resolver.within(timeout) {
                try await resolver.tlsaRecords(of: endpoint.host, port: endpoint.port, isDatagram: target.isDatagram)
            }
            switch result {
            case .found(let records): return found(records, target)
            case .none(let baseDomain):
                return absent(DANEReport(.noRecords, baseDomain), "there are no TLSA records for \(target.endpoint)", isRequired)
            case .unsigned:
                return absent(
                    DANEReport(.unsigned),
                    "the DNS records of \"\(endpoint.host)\" are not signed, so it has no valid TLSA records",
                    isRequired)
            }
        } catch let error where error is CancellationError {
            throw error
        } catch {
            let message = (error as? Failure)?.message ?? "the look-up of the TLSA records failed: \(Failure(error).message)"
            return DANEEvidence(report: DANEReport(.lookUpFailed), problems: [.error(.tlsaLookUpFailed, message)])
        }
    }

    private static func absent(_ report: DANEReport, _ message: String, _ isRequired: Bool) -> DANEEvidence {
        DANEEvidence(report: report, problems: isRequired ? [.error(.noTLSARecords, message)] : [])
    }

    private static func found(_ records: ServerRecords, _ target: ServerTarget) -> DANEEvidence {
        guard let origin = target.origin else { return DANEEvidence(records: records) }
        var records = records
        // RFC 7672, sections 3.1.3 and 3.2.2; RFC 7673, section 4.
        records.usesPKIXRecords = origin.record.type != .mx
        let domain = origin.domain.description
        if domain != records.baseDomain, !records.additionalNames.contains(domain) { records.additionalNames.append(domain) }
        return DANEEvidence(records: records)
    }
}

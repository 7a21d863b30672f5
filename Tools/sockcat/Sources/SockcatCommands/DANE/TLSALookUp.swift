internal import AsyncSockets

/// The result of a look-up of TLSA records that did not fail.
enum TLSALookUp: Sendable, Equatable {
    case found(ServerRecords)
    /// DNSSEC has proved that there are no records.
    case none(baseDomain: String)
    /// The addresses or the records are not signed, so that records would prove nothing.
    case unsigned
}

extension Resolver {
    /// Looks up the TLSA records of a server.
    ///
    /// The host may be an alias. Its target is the TLSA base domain if DNSSEC has validated every alias and
    /// the target has records. Otherwise the host itself is (RFC 7671, section 7; RFC 7672, section 2.2.2).
    func tlsaRecords(of host: DNSName, port: UInt16, isDatagram: Bool) async throws -> TLSALookUp {
        let candidates = try await baseDomains(of: host)
        var isSigned = false
        for candidate in candidates {
            guard let baseDomain = candidate.hostName else {
                throw Failure("\"\(host)\" is an alias of \"\(candidate)\", which is not a host name", status: .connectFailed)
            }
            let answer = try await answer(candidate.prefixed(by: "_\(port)", isDatagram ? "_udp" : "_tcp"), .tlsa)
            guard answer.isAuthentic else { continue }
            isSigned = true
            let records = answer.records.compactMap { if case .tlsa(let record) = $0 { record } else { nil } }
            if records.isEmpty { continue }
            return .found(ServerRecords(baseDomain: baseDomain, records: records, additionalNames: Self.names(host, baseDomain)))
        }
        return isSigned ? .none(baseDomain: candidates[0].description) : .unsigned
    }

    /// The user named the host, or DNSSEC has validated its name.
    private static func names(_ host: DNSName, _ baseDomain: String) -> [String] {
        host.hostName.map { $0 == baseDomain ? [] : [$0] } ?? []
    }

    /// Returns the names that may own the records, most preferred first.
    ///
    /// The addresses are looked up first, because name servers of unsigned zones often fail to reply to
    /// queries for TLSA records (RFC 7672, section 2.1.2).
    private func baseDomains(of host: DNSName) async throws -> [DNSName] {
        let (first, second) = (try await answer(host, .a), try await answer(host, .aaaa))
        let target = first.records.isEmpty ? second.name : first.name
        if first.isAuthentic, second.isAuthentic { return target == host ? [host] : [target, host] }
        // The alias may be signed, although its target is not.
        guard target != host, try await answer(host, .cname).isAuthentic else { return [] }
        return [host]
    }
}

internal import AsyncSockets

/// Finds the versions that a server accepts, and its weakest cipher suite.
///
/// Each attempt is a separate connection with a narrowed offer, without a handshake (`TLSProbe`). It can also
/// offer versions and suites that the loaded OpenSSL cannot negotiate.
struct CapabilityProbes: Sendable {
    private let connection: ServerConnection

    init(_ connection: ServerConnection) {
        self.connection = connection
    }

    func run(_ report: inout CapabilityReport) async throws {
        for (name, version) in zip(TLSVersionName.all, 0x0301...0x0304) {
            let suites = name == TLSVersionName.tls13 ? SuiteTier.numbersOfTLS13 : SuiteTier.numbersUpToTLS12
            report.versions[name] = try await offer(UInt16(version), suites).support
        }
        report.oldestVersion = TLSVersionName.all.first { report.versions[$0] == .accepted }
        try await findWeakestSuite(&report)
    }

    /// Offers each kind of suites, from the weakest to the strongest, until the server accepts.
    private func findWeakestSuite(_ report: inout CapabilityReport) async throws {
        for tier in SuiteTier.all {
            let answer = try await offer(tier.suites[...], of: tier)
            report.suites.append(SuiteReport(kind: tier.kind, support: answer.support))
            if let suite = answer.suite {
                report.weakestSuite = try await weakest(of: tier, below: suite)
                return
            }
        }
    }

    /// Offers the suites that are weaker than the accepted one, until the server rejects the offer.
    private func weakest(of tier: SuiteTier, below accepted: String) async throws -> String {
        let weaker = tier.suites.prefix { $0.name != accepted }
        guard !weaker.isEmpty, weaker.count < tier.suites.count, let suite = try await offer(weaker, of: tier).suite
        else { return accepted }
        return try await weakest(of: tier, below: suite)
    }

    private func offer(_ suites: ArraySlice<SuiteTier.Suite>, of tier: SuiteTier) async throws -> Answer {
        try await offer(
            tier.kind == SuiteTier.tls13.kind ? 0x0304 : 0x0303, suites.map(\.number), acceptsOlderVersions: true)
    }

    private struct Answer {
        var support: Support
        var suite: String?
    }

    private func offer(_ version: UInt16, _ suites: [UInt16], acceptsOlderVersions: Bool = false) async throws -> Answer {
        do {
            return try await probe(version, suites, acceptsOlderVersions: acceptsOlderVersions)
        } catch let error where error is CancellationError {
            throw error
        } catch let error as AsyncSocketError {
            return Answer(support: Self.isRejection(error) ? .notAccepted : .notTestable)
        } catch {
            return Answer(support: .notTestable)
        }
    }

    private func probe(_ version: UInt16, _ suites: [UInt16], acceptsOlderVersions: Bool) async throws -> Answer {
        let probe = TLSProbe(version: version, cipherSuites: suites, serverName: connection.target.expectedName)
        switch try await connection.probe(probe) {
        case .accepted(let selected, let suite):
            let isWanted = selected == version || acceptsOlderVersions && selected < version
            return isWanted && suites.contains(suite)
                ? Answer(support: .accepted, suite: SuiteTier.name(of: suite)) : Answer(support: .notAccepted)
        case .rejected: return Answer(support: .notAccepted)
        case .notTLS: return Answer(support: .notTestable)
        }
    }

    /// Servers reject an offer with an alert or by closing the connection.
    private static func isRejection(_ error: AsyncSocketError) -> Bool {
        if let tls = error.tls { return [.peerAlert, .noSharedParameters, .closedDuringHandshake].contains(tls.code) }
        return [.closedByPeer, .connectionReset].contains(error.code)
    }
}

internal import AsyncSockets

/// Performs a `CapabilitySearch`. Each offer is made on a separate connection, without a handshake
/// (`TLSProbe`). It can also contain versions and suites that the loaded OpenSSL cannot negotiate.
struct CapabilityProbes: Sendable {
    let connection: ServerConnection

    /// - Parameter session: The session that was negotiated without limits, if any.
    func run(_ report: inout CapabilityReport, negotiated session: SessionReport?) async throws {
        var search = CapabilitySearch(negotiated: session.map { ($0.version, $0.cipherSuite) })
        while let offer = search.next { search.note(try await result(of: offer)) }
        search.describe(&report)
    }

    private func result(of offer: CapabilitySearch.Offer) async throws -> CapabilitySearch.Result {
        let probe = TLSProbe(
            version: offer.version, cipherSuites: offer.suites, serverName: connection.target.expectedName)
        do {
            return switch try await connection.probe(probe) {
            case .accepted(let version, let suite): .accepted(version: version, suite: suite)
            case .rejected(let alert): ServerRefusal.isRefusal(alert) ? .notTestable : .rejected
            case .notTLS: .notTestable
            }
        } catch let error where error is CancellationError {
            throw error
        } catch let error as AsyncSocketError {
            // Some servers reject an offer without an alert.
            return ServerRefusal.isRefusal(error, usesStartTLS: connection.target.startTLS != nil) ? .notTestable : .rejected
        } catch {
            return .notTestable
        }
    }
}

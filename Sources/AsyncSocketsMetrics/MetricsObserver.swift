#if Metrics
public import AsyncSockets
public import CoreMetrics

/// An observer that records connection counts and durations with swift-metrics.
///
/// One observer serves any number of sockets. Set it as the `AsyncSocket.observer` of each listener and
/// client. `Documentation/Integrations.md` in the repository lists the metrics and their labels. The observer
/// runs on the connection's thread. The cost of an event is the time the metrics backend takes to update a
/// few counters.
public final class MetricsObserver: SocketObserver {
    private let connections: [ConnectionRole: ConnectionMetrics]
    private let connectFailures: Counter
    private let clientHandshakes: HandshakeMetrics
    private let serverHandshakes: HandshakeMetrics
    private let limitPauses: Counter
    private let shortagePauses: Counter
    private let refusalPauses: Counter
    private let losses: Counter

    /// Creates an observer that reports to a metrics backend.
    ///
    /// - Parameters:
    ///   - prefix: The prefix of all metric names. It is followed by an underscore.
    ///   - factory: The metrics backend. Defaults to the backend that is bootstrapped when this is called.
    public init(prefix: String = "async_sockets", factory: any MetricsFactory = MetricsSystem.factory) {
        let names = MetricNames(prefix: prefix, factory: factory)
        connections = Dictionary(
            uniqueKeysWithValues: ConnectionRole.allCases.map { ($0, ConnectionMetrics(of: $0, names)) })
        connectFailures = names.counter("connect_failures_total")
        clientHandshakes = HandshakeMetrics(as: "client", names)
        serverHandshakes = HandshakeMetrics(as: "server", names)
        limitPauses = names.counter("accept_pauses_total", [("reason", "limit")])
        shortagePauses = names.counter("accept_pauses_total", [("reason", "shortage")])
        refusalPauses = names.counter("accept_pauses_total", [("reason", "refusal")])
        losses = names.counter("accepted_connections_lost_total")
    }

    // MARK: - SocketObserver

    /// Counts the connection as opened and open.
    public func connectionDidBegin(_ connection: ObservedConnection) {
        connections[connection.role]?.begin()
    }

    /// Counts the closed connection and its bytes, and records its duration.
    public func connectionDidEnd(
        _ connection: ObservedConnection, withError error: AsyncSocketError?, totals: ConnectionTotals
    ) {
        connections[connection.role]?.end(error, totals)
    }

    /// Counts the failure, unless this side cancelled the `connect`.
    public func connectDidFail(_ error: AsyncSocketError?) {
        if error != nil { connectFailures.increment() }
    }

    /// Counts the handshake by version, and a trust decision of your code by its result, and records their
    /// durations.
    public func connection(
        _ connection: ObservedConnection, didSecureAs role: TLSRole, session: TLSSession, times: HandshakeTimes
    ) {
        handshakes(as: role).succeed(session, times)
    }

    /// Counts the failed or cancelled handshake, and a trust decision of your code by its result.
    public func connection(
        _ connection: ObservedConnection, didFailToSecureAs role: TLSRole, error: AsyncSocketError?,
        times: HandshakeTimes
    ) {
        handshakes(as: role).fail(error, times)
    }

    /// Counts the pause by reason.
    public func acceptingDidPause(_ pause: AcceptPause) {
        switch pause.reason {
        case .connectionLimit: limitPauses.increment()
        case .shortage: shortagePauses.increment()
        case .refused: refusalPauses.increment()
        }
    }

    /// Counts the lost connection.
    public func didLoseAcceptedConnection(from peer: SocketEndpoint, _ loss: AcceptLoss) {
        losses.increment()
    }

    private func handshakes(as role: TLSRole) -> HandshakeMetrics {
        switch role {
        case .client: clientHandshakes
        case .server: serverHandshakes
        }
    }
}

private struct ConnectionMetrics: Sendable {
    private let opened: Counter
    private let closedOrderly: Counter
    private let closedByError: Counter
    private let open: Meter
    private let bytesReceived: Counter
    private let bytesSent: Counter
    private let duration: CoreMetrics.Timer

    init(of role: ConnectionRole, _ names: MetricNames) {
        let role = [("role", role.rawValue)]
        opened = names.counter("connections_opened_total", role)
        closedOrderly = names.counter("connections_closed_total", role + [("result", "orderly")])
        closedByError = names.counter("connections_closed_total", role + [("result", "error")])
        open = names.meter("connections_open", role)
        bytesReceived = names.counter("received_bytes_total", role)
        bytesSent = names.counter("sent_bytes_total", role)
        duration = names.timer("connection_duration", role)
    }

    func begin() {
        opened.increment()
        open.increment()
    }

    func end(_ error: AsyncSocketError?, _ totals: ConnectionTotals) {
        open.decrement()
        let closed = error.map(\.isOrderlyEnd) ?? true ? closedOrderly : closedByError
        closed.increment()
        bytesReceived.increment(by: totals.bytesReceived)
        bytesSent.increment(by: totals.bytesSent)
        duration.recordSeconds(totals.duration / .seconds(1))
    }
}

private struct HandshakeMetrics: Sendable {
    /// Successful handshakes with one version.
    private struct Version: Sendable {
        let version: TLSProtocolVersion
        let full: Counter
        let resumed: Counter
    }

    private let versions: [Version]
    private let failed: Counter
    private let cancelled: Counter
    private let duration: CoreMetrics.Timer
    private let trust: TrustMetrics

    init(as role: String, _ names: MetricNames) {
        func counter(_ version: String, _ result: String) -> Counter {
            names.counter("handshakes_total", [("role", role), ("version", version), ("result", result)])
        }
        versions = [TLSProtocolVersion.tls12, .tls13].map { version in
            Version(
                version: version, full: counter("\(version)", "full"), resumed: counter("\(version)", "resumed"))
        }
        // The version is not known.
        failed = counter("none", "failed")
        cancelled = counter("none", "cancelled")
        duration = names.timer("handshake_duration", [("role", role)])
        trust = TrustMetrics(as: role, names)
    }

    func succeed(_ session: TLSSession, _ times: HandshakeTimes) {
        if let version = versions.first(where: { $0.version == session.protocolVersion }) {
            (session.isResumed ? version.resumed : version.full).increment()
        }
        duration.recordSeconds(times.total / .seconds(1))
        trust.note(nil, times.trust)
    }

    func fail(_ error: AsyncSocketError?, _ times: HandshakeTimes) {
        (error == nil ? cancelled : failed).increment()
        if let code = error?.tls?.code { trust.note(code, times.trust) }
    }
}

/// The decisions of the program whether to trust a peer.
private struct TrustMetrics: Sendable {
    private let accepted: Counter
    private let rejected: Counter
    private let timedOut: Counter
    private let duration: CoreMetrics.Timer

    init(as role: String, _ names: MetricNames) {
        func counter(_ result: String) -> Counter {
            names.counter("trust_decisions_total", [("role", role), ("result", result)])
        }
        (accepted, rejected, timedOut) = (counter("accepted"), counter("rejected"), counter("timed_out"))
        duration = names.timer("trust_decision_duration", [("role", role)])
    }

    /// - Parameters:
    ///   - failure: Why the handshake failed, or `nil` if it succeeded.
    ///   - time: Zero if the program was not involved.
    func note(_ failure: TLSError.Code?, _ time: Duration) {
        guard time > .zero else { return }
        switch failure {
        case nil: accepted.increment()
        case .trustRejected: rejected.increment()
        case .trustTimeout: timedOut.increment()
        // The handshake failed before or after the decision.
        default: return
        }
        duration.recordSeconds(time / .seconds(1))
    }
}

/// Creates metrics whose names have a prefix.
struct MetricNames {
    let prefix: String
    let factory: any MetricsFactory

    func counter(_ name: String, _ labels: [(String, String)] = []) -> Counter {
        Counter(label: "\(prefix)_\(name)", dimensions: labels, factory: factory)
    }

    func meter(_ name: String, _ labels: [(String, String)]) -> Meter {
        Meter(label: "\(prefix)_\(name)", dimensions: labels, factory: factory)
    }

    func timer(_ name: String, _ labels: [(String, String)]) -> CoreMetrics.Timer {
        Timer(label: "\(prefix)_\(name)", dimensions: labels, factory: factory)
    }
}
#endif

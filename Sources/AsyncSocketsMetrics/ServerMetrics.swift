#if Metrics
public import AsyncSockets
public import CoreMetrics
internal import Synchronization

/// Records the connections and refusals of a listener, and the latency of the event loops, with
/// swift-metrics.
///
/// ```swift
/// let metrics = ServerMetrics(of: listener, named: "smtp")
/// async let recording: Void = metrics.run()
/// ```
///
/// `Documentation/Integrations.md` in the repository lists the metrics and their labels. To record each
/// connection and handshake as well, add a `MetricsObserver`.
public final class ServerMetrics: Sendable {
    private let listener: any ServingListener
    private let open: Meter
    private let handshakes: Meter
    private let waiting: Meter
    private let pending: Meter
    private let accepted: Counter
    private let refused: [(count: @Sendable (ServerSnapshot.Refusals) -> Int, counter: Counter)]
    private let latency: CoreMetrics.Timer
    /// The snapshot recorded last.
    private let recorded = Mutex(ServerSnapshot())

    /// Prepares the metrics of a listener. Nothing is recorded until `record()` or `run(every:)` is
    /// called. Do not call `record()` concurrently.
    ///
    /// - Parameters:
    ///   - listener: The listener.
    ///   - name: The value of the label `server`, which distinguishes the listeners of a process.
    ///   - prefix: The prefix of all metric names. It is followed by an underscore.
    ///   - factory: The metrics backend. Defaults to the backend that is bootstrapped when this is called.
    public init(
        of listener: any ServingListener, named name: String, prefix: String = "async_sockets",
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        let names = MetricNames(prefix: prefix, factory: factory)
        let server = [("server", name)]
        func refusals(_ reason: String) -> Counter {
            names.counter("server_refused_total", server + [("reason", reason)])
        }
        self.listener = listener
        open = names.meter("server_open", server)
        handshakes = names.meter("server_handshakes", server)
        waiting = names.meter("server_waiting", server)
        pending = names.meter("server_pending_bytes", server)
        accepted = names.counter("server_accepted_total", server)
        refused = [
            (\.bySource, refusals("source")), (\.byConnections, refusals("connections")),
            (\.byHandshakes, refusals("handshakes")), (\.byPendingBytes, refusals("pending_bytes")),
            (\.byRate, refusals("rate")), (\.byClosing, refusals("closing")), (\.invalid, refusals("invalid")),
        ]
        latency = names.timer("event_loop_latency", server)
    }

    /// Records the listener's snapshot, and the latency of each event loop of the process.
    public nonisolated(nonsending) func record() async {
        let snapshot = listener.snapshot
        let last = recorded.withLock { recorded in
            defer { recorded = snapshot }
            return recorded
        }
        open.set(snapshot.openCount)
        handshakes.set(snapshot.handshakeCount)
        waiting.set(snapshot.waitingCount)
        pending.set(snapshot.pendingByteCount)
        accepted.increment(by: snapshot.acceptedCount - last.acceptedCount)
        for (count, counter) in refused { counter.increment(by: count(snapshot.refused) - count(last.refused)) }
        for time in await SocketEventLoop.latencies() { latency.recordSeconds(time / .seconds(1)) }
    }

    /// Records immediately and after each interval, until the listener is closed and has no connections.
    ///
    /// - Parameter interval: How often to record. Defaults to every 10 seconds.
    /// - Throws: `CancellationError` if the task is cancelled.
    public nonisolated(nonsending) func run(every interval: Duration = .seconds(10)) async throws {
        let interval = max(interval, .milliseconds(1))
        while listener.isListening {
            await record()
            try await listener.untilClosing { try await Task.sleep(for: interval) }
        }
        while listener.snapshot.openCount > 0 {
            await record()
            try await Task.sleep(for: min(interval, .seconds(1)))
        }
        await record()
    }
}
#endif

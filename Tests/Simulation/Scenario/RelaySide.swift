internal import AsyncSockets
internal import SocketCore

/// A task that relays between two connections. Its peers are the other two sides.
final class RelaySide: Side, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name = "relay"
    private let scenario: Scenario
    private var sockets: [AsyncSocket] = []
    private weak var firstObserved: AsyncSocket?
    private weak var secondObserved: AsyncSocket?
    private var hasEnded = false

    init(_ descriptors: [Int32], _ scenario: Scenario) {
        self.scenario = scenario
        do {
            sockets = try descriptors.map { try AsyncSocket(adopting: $0) }
            (firstObserved, secondObserved) = (sockets[0], sockets[1])
        } catch {
            scenario.scheduler.fail("\(name): \(error)")
        }
    }

    var loop: SocketEventLoop? { sockets.first?.executor }
    var isReleased: Bool { firstObserved == nil && secondObserved == nil }

    func run() {
        guard sockets.count == 2 else { return }
        let (first, second) = (sockets[0], sockets[1])
        Task(executorPreference: first.executor) { [self] in
            // The sides check what arrives. A side that has closed may reset the relay.
            _ = try? await first.relay(with: second)
            scenario.trace.add("relayed", 0)
            if hasEnded { scenario.scheduler.fail("relay: the task finishes twice") }
            hasEnded = true
            for socket in [first, second] { socket.disconnect() }
        }
    }

    func disturb(_ disturbance: Plan.Disturbance) {}

    func complaintAtEnd() -> String? { hasEnded ? nil : "the relay does not end" }

    func abandon() {
        var released = sockets
        sockets = []
        // May be the last references.
        scenario.kernel.serving { released.removeAll() }
    }
}

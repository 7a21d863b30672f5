internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A `DatagramListener` that returns each message to its sender.
final class PeerListener: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name = "listener"
    var clients: [DatagramClient] = []
    private let course: DatagramRun
    private let plan: DatagramPlan
    private var listener: DatagramListener?
    private weak var observed: DatagramListener?
    private var snapshot: ServerSnapshot?
    private var activePorts: Set<UInt16> = []
    private var hasFinished = false
    private var closeStart: UInt64?
    private var hasClosed = false

    init(_ course: DatagramRun) {
        (self.course, plan) = (course, course.plan)
        do {
            course.kernel.hasNoFaults = true
            listener = try DatagramListener(
                port: DatagramRun.port, interface: "127.0.0.1", dtls: plan.isSecure ? Certificates.server : nil,
                idleTimeout: .seconds(60), configure: { $0.isIPv6Enabled = false })
            course.kernel.hasNoFaults = false
            observed = listener
        } catch {
            complain("\(error)")
        }
    }

    var isReleased: Bool { observed == nil }

    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        guard let listener else { return }
        Task { [self] in
            do {
                try await listener.run { try await self.serve($0) }
            } catch {
                complain("run throws \(error)")
            }
            if hasFinished { complain("run returns twice") }
            hasFinished = true
        }
        CSim_set_simulated(false)
        course.scheduler.wait { [self] in closeStart != nil || clients.allSatisfy(\.hasFinished) }
        CSim_set_simulated(true)
        disconnect()
    }

    private func serve(_ socket: AsyncUDPSocket) async throws {
        guard let port = socket.connectedAddress?.port else { return complain("a peer has no address") }
        if !activePorts.insert(port).inserted { complain("port \(port) is served by two tasks") }
        defer { activePorts.remove(port) }
        while true {
            let data = try await socket.receive().data
            guard let client = clients.first(where: { $0.owns(data) }) else { return complain("an altered datagram") }
            client.noteArrival(data)
            try await socket.send(data)
        }
    }

    /// Closes the listener.
    func disconnect() {
        guard let listener, closeStart == nil else { return }
        let start = course.kernel.now
        closeStart = start
        Task { [self] in
            await listener.close(timeout: .milliseconds(plan.closeTimeout))
            hasClosed = true
            course.checkTime(since: start, UInt64(plan.closeTimeout) * 1_000_000, isExact: false, "close")
        }
    }

    func complaintAtEnd() -> String? {
        guard let listener else { return nil }
        if !hasFinished { return "run does not end" }
        if !hasClosed { return "close does not return" }
        let snapshot = listener.snapshot
        let count = snapshot.openCount + snapshot.handshakeCount + snapshot.waitingCount + snapshot.pendingByteCount
        return snapshot.isListening || count > 0 || !activePorts.isEmpty ? "\(snapshot)" : nil
    }

    func abandon() {
        clients = []
        listener = nil
    }
}

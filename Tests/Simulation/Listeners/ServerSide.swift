internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// The listener, and the tasks that serve its connections.
final class ServerSide: Server, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private let course: ListenerRun
    private let plan: ListenerPlan
    private var listener: SocketListener?
    private var task: Task<Void, Never>?
    /// Whether the task is cancelled, perhaps before it exists.
    private var isCancelled = false
    private var result: Result<Void, any Error>?
    /// The counts at the end.
    private var snapshot: ServerSnapshot?
    private var servedPorts: Set<UInt16> = []
    private var activeCount = 0
    private var preparationFailures = 0
    private var closeCount = 0
    private var closedCount = 0
    var timeoutCount = 0

    init(_ run: ListenerRun) {
        (course, plan) = (run, run.plan)
        do {
            let listener = try SocketListener(
                port: ListenerRun.port, interface: "127.0.0.1", tls: plan.hasTLS ? Certificates.server : nil,
                maximumConnections: plan.maximumConnections)
            if let limit = plan.maximumPerSource { listener.maximumConnectionsPerSource = limit }
            self.listener = listener
        } catch {
            complain("\(error)")
        }
    }

    private func complain(_ text: String) { course.scheduler.fail("server: \(text)") }

    var refusalCount: Int { snapshot?.refused.total ?? 0 }

    // MARK: - Serving

    func run() {
        guard let listener else { return }
        task = Task { [self, weak listener] in
            do {
                if plan.isSequence {
                    try await serveSequence(listener?.connections)
                } else {
                    try await listener?.run(onError: note) { try await self.serve($0) }
                }
                finish(.success(()))
            } catch {
                finish(.failure(error))
            }
        }
        if isCancelled { task?.cancel() }
    }

    private func note(_ error: any Error, _ socket: AsyncSocket) {
        // A connection that was never served.
        if let port = socket.connectedAddress?.port, !servedPorts.contains(port) { preparationFailures += 1 }
    }

    private func serveSequence(_ connections: SocketListener.Connections?) async throws {
        guard let connections else { return }
        await withDiscardingTaskGroup { group in
            do {
                for try await socket in connections {
                    group.addTask { [self] in
                        do {
                            try await serve(socket)
                            try await socket.close()
                        } catch {
                            socket.disconnect()
                        }
                    }
                }
            } catch {
                if !(error is CancellationError) { complain("the sequence fails: \(error)") }
                group.cancelAll()
            }
        }
    }

    private func serve(_ socket: AsyncSocket) async throws {
        guard let port = socket.connectedAddress?.port else { return complain("a connection has no address") }
        course.trace.add("serves", Int(port))
        if !servedPorts.insert(port).inserted { complain("the connection of port \(port) is served twice") }
        checkSources()
        activeCount += 1
        defer { activeCount -= 1 }
        try await reply(to: socket)
    }

    /// A connection counts until its descriptor is closed. Refused connections are not served.
    private func checkSources() {
        let served = course.accepted.filter { !$0.isClosed && servedPorts.contains($0.remotePlace.port) }
        for (source, ends) in Dictionary(grouping: served, by: \.remotePlace.address) where ends.count > plan.sourceLimit {
            complain("\(ends.count) connections of source \(source) are served")
        }
    }

    /// A request is the number of the client, a line feed, and the pattern of the client.
    private func reply(to socket: AsyncSocket) async throws {
        guard let line = try await socket.readLine() else { return }
        guard let client = Int(line), plan.clients.indices.contains(client) else {
            // A client that closes early sends a part of the line.
            return
        }
        let pattern = course.pattern(of: client)
        let data = try await socket.read(exactly: pattern.bytes.count)
        if let complaint = pattern.complaint(about: data, at: 0) { complain("request \(client): \(complaint)") }
        try await socket.write(data)
    }

    private func finish(_ result: Result<Void, any Error>) {
        course.trace.add("server ends", 0)
        if self.result != nil { complain("run returns twice") }
        self.result = result
        guard case .failure(let error) = result else { return }
        if !(error is CancellationError) || plan.shutdown != .cancel { complain("run throws \(error)") }
    }

    // MARK: - Shutting down

    func shutDown() {
        guard let listener else { return }
        let start = course.kernel.now
        let timeout = Duration.milliseconds(plan.closeTimeout)
        switch plan.shutdown {
        case .afterClients, .close:
            for _ in 0...course.choices.pick(2, Choices.Stream.sides) { close(listener, timeout, start) }
        case .beginClosing:
            listener.beginClosing(timeout: timeout)
            watchTime(start, plan.closeTimeout)
        case .cancel:
            isCancelled = true
            task?.cancel()
            if !plan.isSequence { watchTime(start, 0) }
            // The listener stays open after a cancelled iteration.
            if plan.isSequence { close(listener, timeout, start) }
        }
    }

    private func close(_ listener: SocketListener, _ timeout: Duration, _ start: UInt64) {
        closeCount += 1
        Task { [self] in
            await listener.close(timeout: timeout)
            closedCount += 1
            course.checkTime(since: start, UInt64(plan.closeTimeout) * 1_000_000, isExact: false, "close")
        }
    }

    /// Checks that `run` returns in time.
    private func watchTime(_ start: UInt64, _ milliseconds: Int) {
        guard !plan.isSequence else { return }
        course.kernel.after(UInt64(milliseconds) * 1_000_000 + 2_000_000) { [self] in
            if result == nil { complain("run does not return \(course.kernel.now - start) ns after the shutdown") }
        }
    }

    // MARK: - The end

    func complaintAtEnd(acceptedCount: Int) -> String? {
        if let listener { snapshot = listener.snapshot }
        if result == nil { return "run does not end" }
        if closedCount != closeCount { return "\(closedCount) of \(closeCount) calls of close return" }
        if activeCount > 0 { return "\(activeCount) connections are still served" }
        guard let snapshot else { return nil }
        let counts = "\(snapshot)"
        // Ready sockets that a cancelled iteration did not return close with the listener.
        let openCount = plan.isSequence && plan.shutdown == .cancel ? 0 : snapshot.openCount
        if snapshot.isListening || openCount + snapshot.handshakeCount + snapshot.waitingCount > 0 { return counts }
        let refused = snapshot.refused.bySource + snapshot.refused.byRate
        if snapshot.acceptedCount + refused != acceptedCount { return "\(acceptedCount) connections were accepted: \(counts)" }
        if snapshot.refused.bySource > course.crowdedCount {
            return "\(course.crowdedCount) connections exceeded the limit of their source: \(counts)"
        }
        let served = servedPorts.count + preparationFailures
        // A short timeout may cancel a connection before its task has begun.
        let isPatient = plan.closeTimeout == 30_000
        if plan.shutdown != .cancel, isPatient, !plan.isSequence || !plan.hasTLS, served != snapshot.acceptedCount {
            return "\(served) connections are served: \(counts)"
        }
        return served > snapshot.acceptedCount ? "\(served) connections are served: \(counts)" : nil
    }

    func abandon() {
        var (listener, task) = (listener.take(), task.take())
        // May be the last references.
        if listener != nil { listener = nil }
        if task != nil { task = nil }
    }
}

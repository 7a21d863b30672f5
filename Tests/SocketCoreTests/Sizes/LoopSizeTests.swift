import AsyncSocketsTesting
import Dispatch
import Glibc
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

/// The memory of loops, quotas, resolvers and limiters after their work has finished.
@Suite(.timeLimit(.patient)) struct LoopSizeTests {
    private static let count = 10_000

    /// Read on the loop's thread, to which most of this state is confined.
    private func contents(of loop: SocketEventLoop) async -> Contents {
        await withCheckedContinuation { continuation in
            loop.run { continuation.resume(returning: Contents(of: loop, entering: [LoopRunner.self, JobBudget.self])) }
        }
    }

    private final class Work: BatchedWork {
        let done: @Sendable () -> Void

        init(_ done: @escaping @Sendable () -> Void) { self.done = done }

        func takeTicket() -> Int { 0 }
        func run(upTo ticket: Int, on queue: DispatchQueue) { done() }
    }

    /// Calls, jobs of tasks, yields and work for queues.
    @Test func aLoopKeepsNothingOfWhatItHasRun() async throws {
        let loop = try SocketEventLoop()
        let (tally, queue, done) = (Tally(), DispatchQueue(label: "work"), Locked(0))
        func run(_ count: Int) async throws {
            let goal = done.withLock { $0 } + count
            for _ in 0..<count {
                let token = tally.token()
                loop.run {
                    loop.afterBatch(Work { withExtendedLifetime(token) { done.withLock { $0 += 1 } } }, on: queue)
                }
            }
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<count {
                    let token = tally.token()
                    group.addTask(executorPreference: loop) {
                        await JobBudget.renew()
                        withExtendedLifetime(token) {}
                    }
                }
            }
            try await eventually("all work is done") { done.withLock { $0 } == goal && loop.registrationCount == 0 }
        }
        try await run(100)
        // Places are kept for as many handlers as were registered at the same time.
        let places = ["runner.state.table.slots", "runner.state.table.freeIndices"]
        let before = await contents(of: loop)
        try await run(Self.count)
        let after = await contents(of: loop)
        #expect(after.without(places[0], places[1]) == before.without(places[0], places[1]))
        #expect(after[places[0]] == after[places[1]] && after[places[0]] >= 100)
        for list in ["departures", "waitingForReturn", "state.arrivals.jobs", "state.table.resumed", "budget.waiting"] {
            #expect(after["runner." + list] == 0, "\(list)")
        }
        try await eventually("all is released") { tally.alive == 0 }
    }

    // MARK: - The resolver

    /// Lookups that succeed, fail, and are cancelled before they start.
    @Test func aResolverKeepsNothingOfItsLookups() async throws {
        let gate = DispatchSemaphore(value: 0)
        let resolver = Resolver(concurrency: 2) { query in
            if query.host == "slow.test" { gate.wait() }
            return query.port % 2 == 0 ? .success([]) : .failure(ResolveError(query, code: EAI_NONAME))
        }
        let before = Contents(of: resolver)
        let (tally, answers) = (Tally(), Locked(0))
        func lookUp(_ host: String, _ port: Int) -> Resolver.Lookup? {
            let token = tally.token()
            return resolver.resolve(HostQuery(host: host, port: UInt16(port))) { _ in
                withExtendedLifetime(token) { answers.withLock { $0 += 1 } }
            }
        }
        for port in 0..<Self.count { _ = lookUp("quick.test", port) }
        try await eventually("all lookups are complete") { answers.withLock { $0 } == Self.count }
        try await eventually("the lanes are free") { Contents(of: resolver) == before }
        // Two lookups occupy the lanes, and all later lookups are queued.
        for port in 0..<2 { _ = lookUp("slow.test", port) }
        let lookups = (0..<Self.count).map { lookUp("waiting.test", $0) }
        #expect(tally.alive >= Self.count)
        let cancelledCount = lookups.count { $0?.cancel() == true }
        for _ in 0..<2 { gate.signal() }
        try await eventually("the remaining lookups are complete") {
            answers.withLock { $0 } == 2 * Self.count + 2 - cancelledCount
        }
        #expect(cancelledCount >= Self.count - 2)
        try await eventually("the resolver is as large as before") { Contents(of: resolver) == before && tally.alive == 0 }
    }

    // MARK: - Quotas

    private func take(_ quota: AcceptQuota, for listener: UInt32, _ connection: SocketDescriptor) -> Bool {
        guard let permit = quota.takePermit(for: LoopRegistration(index: listener, generation: 0)),
            let peer = SocketEndpoint(literal: "127.0.0.1", port: 9)
        else { return false }
        return permit.handOver(to: connection, of: peer)
    }

    @Test func aQuotaForgetsListenersThatWait() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let before = Contents(of: quota)
        for number in 0..<UInt32(Self.count) {
            let connections = try (0..<2).map { _ in try SocketDescriptor(streamOf: .ipv4) }
            #expect(take(quota, for: .max, connections[0]) && !take(quota, for: number, connections[1]))
            if number % 50 == 0 { #expect(Contents(of: quota)["state.waiting"] == 1) }
            for connection in connections { connection.close() }
        }
        #expect(quota.openCount == 0 && Contents(of: quota) == before)
    }

    /// One connection has the only permit while listeners open and close.
    @Test func aQuotaForgetsListenersThatHaveClosed() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let held = try SocketDescriptor(streamOf: .ipv4)
        #expect(take(quota, for: .max, held))
        for _ in 0..<50 {
            let closed = Locked(false)
            let receiver = Acceptor.Receiver(
                accepted: { _, _ in Issue.record("accepted") }, paused: { _, _ in },
                closed: { closed.withLock { $0 = true } })
            let acceptor = try Acceptor(on: .loopback(), quota: quota, loop: loop, receiver: receiver)
            acceptor.start()
            try await eventually("the listener needs a permit") { Contents(of: quota)["state.waiting"] == 1 }
            acceptor.close()
            try await eventually("the listener is closed") { closed.withLock { $0 } }
            #expect(Contents(of: quota)["state.waiting"] == 0)
        }
        held.close()
        #expect(quota.openCount == 0)
    }

    // MARK: - Limiters and options

    /// Sources that send once, that send again after they were forgotten, and that get no place.
    @Test(arguments: [1, 64]) func aRateLimiterKeepsNoMoreSourcesThanItsLimit(_ limit: Int) throws {
        var limiter = SourceRateLimiter(
            SourceRateLimit(perSource: .init(perSecond: 1, burst: 1), maximumSources: limit))
        let start = Deadline.now
        for number in 0..<Self.count {
            let source = try SocketEndpoint.loopback("10.0.\(number / 250 % 250).\(number % 250 + 1)", port: 9)
            let now = try #require(Deadline(after: Double(number / 3), from: start))
            _ = limiter.judge(source, at: now)
            #expect(limiter.trackedCount <= limit)
        }
        let contents = Contents(of: limiter)
        #expect(contents["sources.entries"] == limit && contents["sources.places"] == limit)
        #expect(contents["sources.shared"] == 64)
    }

    @Test func anOptionThatIsSetAgainIsKeptOnce() throws {
        var options = SocketOptionSet()
        for number in 0..<Self.count { try options.set(.receiveBufferSize, to: 4096 + number) }
        try options.set(.keepAlive, to: true)
        #expect(Contents(of: options)["entries"] == 2 && options.value(of: .receiveBufferSize) == 4095 + Self.count)
    }

    /// The process-wide list of watches does not grow.
    @Test func aSignalWatchThatHasEndedIsReleased() throws {
        for _ in 0..<1000 {
            weak var kept: SignalWatch?
            do {
                let watch = try SignalWatch([SIGUSR2]) { _ in }
                kept = watch
                watch.end()
            }
            #expect(kept == nil)
        }
    }
}

import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

/// A full quota chooses the connection that gives way.
@Suite(.timeLimit(.patient)) struct ReplacementTests {
    private final class Owner: ConnectionOwner {
        private let isProven: Bool
        let requestCount = Locked(0)

        init(isProven: Bool) { self.isProven = isProven }

        func giveWay() -> Bool {
            requestCount.withLock { $0 += 1 }
            return !isProven
        }
    }

    private final class Listener: EventHandler {
        func handle(_ events: LoopEvents) {}
    }

    /// A quota without room, and the owners of its connections in the order in which they were accepted.
    private struct Full {
        let quota: AcceptQuota
        let owners: [Owner]
        let descriptors: [SocketDescriptor]
        private let end: Deadline

        /// - Parameter provenCount: How many of the connections that may be replaced are proven.
        init(limit: Int, provenCount: Int = 0) throws {
            let loop = try SocketEventLoop()
            let quota = AcceptQuota(limit: limit, limitPerSource: limit, loop: loop)
            let waiter = loop.register(Listener())
            owners = (0..<limit).map { Owner(isProven: $0 < limit / 2 + provenCount) }
            descriptors = try owners.map { owner in
                let descriptor = try SocketDescriptor(streamOf: .ipv4)
                guard let permit = quota.takePermit(for: waiter) else { throw Unexpected(description: "the quota is full") }
                let isKept = permit.handOver(to: descriptor, of: try .loopback("10.0.0.1", port: 1))
                #expect(isKept)
                descriptor.observer?.descriptorDidFind(owner)
                return descriptor
            }
            self.quota = quota
            end = .now
        }

        func close() { for descriptor in descriptors { descriptor.close() } }

        /// How many connections the quota has chosen.
        var requestCount: Int { owners.reduce(0) { $0 + $1.requestCount.withLock { $0 } } }

        /// Returns after the first second of each connection.
        func makeRoomAfterASecond() async throws -> AcceptQuota.Wait {
            try await eventually("the first second is over") { Deadline.now.seconds(since: end) >= 1 }
            return quota.makeRoom()
        }
    }

    @Test func aConnectionIsKeptInItsFirstSecond() async throws {
        let start = Deadline.now
        let full = try Full(limit: 2)
        guard case .until(let time) = full.quota.makeRoom() else {
            Issue.record("the quota does not wait for the end of the second")
            return
        }
        #expect(full.requestCount == 0 || Deadline.now.seconds(since: start) >= 1)
        #expect(time.seconds(since: start) >= 1)
        guard case .untilResumed = try await full.makeRoomAfterASecond() else {
            Issue.record("the quota sets another deadline")
            return
        }
        // The first connection was accepted while the listener was at most half full.
        #expect(full.owners.map { $0.requestCount.withLock { $0 } } == [0, 1])
        full.close()
    }

    /// Closing one connection would not make room for another.
    @Test func afterALimitWasLoweredNoConnectionGivesWay() async throws {
        let full = try Full(limit: 4)
        full.quota.setLimit(3)
        for _ in 0..<2 {
            guard case .untilResumed = full.quota.makeRoom() else {
                Issue.record("the quota would try again")
                return
            }
        }
        full.quota.setLimit(4)
        _ = try await full.makeRoomAfterASecond()
        full.quota.setLimit(3)
        full.descriptors[2].close()
        #expect(full.quota.openCount == 3 && full.requestCount == 1)
        full.close()
    }

    /// Connections without TLS prove themselves unnoticed, so a quota may find many that are proven.
    @Test func aQuotaExaminesALimitedNumberOfConnectionsAtATime() async throws {
        let full = try Full(limit: 200, provenCount: 70)
        guard case .until = try await full.makeRoomAfterASecond() else {
            Issue.record("the quota has found no connection, and is not active until it is resumed")
            return
        }
        #expect(full.requestCount == 64)
        for _ in 0..<2 {
            guard case .untilResumed = full.quota.makeRoom() else {
                Issue.record("a connection gives way, and the quota does not wait for its end")
                return
            }
            #expect(full.requestCount == 71)
        }
        full.descriptors[170].close()
        #expect(full.quota.counts.replaced == 1)
        full.close()
    }
}

import AsyncSocketsTesting
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct AcceptQuotaTests {
    private static func listen(with quota: AcceptQuota, on loop: SocketEventLoop) throws -> (
        Acceptor, AsyncStream<SocketDescriptor>
    ) {
        let address = try SocketEndpoint.loopback()
        let (stream, continuation) = AsyncStream<SocketDescriptor>.makeStream()
        let receiver = Acceptor.Receiver(
            accepted: { descriptor, _ in continuation.yield(descriptor) }, paused: { _, _ in }, closed: {})
        let acceptor = try Acceptor(on: address, quota: quota, loop: loop, receiver: receiver)
        acceptor.start()
        return (acceptor, stream)
    }

    private static func connect(to address: SocketEndpoint) throws -> SocketDescriptor {
        let descriptor = try SocketDescriptor(streamOf: .ipv4)
        if case .failed(let error) = descriptor.connect(to: address) { throw error }
        return descriptor
    }

    /// A permit without a connection leaves room for the next one.
    @Test func unusedPermitsDoNotCountAsAcceptedAhead() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(aheadLimit: 1, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let arrived = Locked<[SocketDescriptor]>([])
        let taking = Task { for await connection in accepted { arrived.withLock { $0.append(connection) } } }
        for count in 1...5 {
            let client = try Self.connect(to: acceptor.localAddress)
            try await eventually("it is accepted") { arrived.withLock { $0.count } == count }
            quota.noteTaken(1)
            client.close()
            // The listener takes a permit and finds no connection.
            let hasTurned = try TestSignal()
            loop.run { hasTurned.fire() }
            try await hasTurned.wait()
        }
        acceptor.close()
        taking.cancel()
        for connection in arrived.withLock({ $0 }) { connection.close() }
    }

    /// The listener checks the quota once for each new connection and twice for each returned permit. It does
    /// not spin.
    @Test func aFullListenerAsksOnlyWhenThereIsAReasonTo() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let clients = try (0..<100).map { _ in try Self.connect(to: acceptor.localAddress) }
        var iterator = accepted.makeAsyncIterator()
        for _ in clients {
            let connection = try #require(await iterator.next())
            #expect(quota.openCount == 1)
            connection.close()
        }
        #expect(quota.refusalCount <= 2 * clients.count)
        #expect(quota.refusalCount > 0)
        acceptor.close()
    }

    @Test func onlySoManyAreAcceptedThatNoOneHasTaken() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(aheadLimit: 2, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let clients = try (0..<20).map { _ in try Self.connect(to: acceptor.localAddress) }
        var iterator = accepted.makeAsyncIterator()
        var taken: [SocketDescriptor] = []
        while taken.count < clients.count {
            #expect(quota.openCount <= taken.count + 2)
            taken.append(try #require(await iterator.next()))
            quota.noteTaken(1)
        }
        acceptor.close()
    }

    @Test func aConnectionThatIsDroppedReturnsItsPermit() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let clients = try (0..<3).map { _ in try Self.connect(to: acceptor.localAddress) }
        var iterator = accepted.makeAsyncIterator()
        for _ in clients {
            let connection = try #require(await iterator.next())
            #expect(quota.openCount == 1)
            withExtendedLifetime(connection) {}
        }
        // No client remains to take the last permit.
        try await eventually("the last permit is returned") { quota.openCount == 0 }
        acceptor.close()
    }

    @Test func aConnectionCountsUntilItsLingeringCloseIsOver() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let clients = try (0..<2).map { _ in try Self.connect(to: acceptor.localAddress) }
        var iterator = accepted.makeAsyncIterator()
        LingeringClose.begin(with: try #require(await iterator.next()), sending: nil, on: loop)
        #expect(quota.openCount == 1)
        for client in clients { client.close() }
        _ = try #require(await iterator.next())
        acceptor.close()
    }

    @Test func aDescriptorThatIsRelinquishedReturnsItsPermit() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let (acceptor, accepted) = try Self.listen(with: quota, on: loop)
        let client = try Self.connect(to: acceptor.localAddress)
        var iterator = accepted.makeAsyncIterator()
        let connection = try #require(await iterator.next())
        let owned = SocketDescriptor(adopting: connection.rawValue)
        connection.relinquish()
        connection.close()
        // The listener takes the permit to check its backlog, and returns it.
        try await eventually("the permit is returned") { quota.openCount == 0 }
        acceptor.close()
        withExtendedLifetime((client, owned)) {}
    }

    @Test func twoListenersShareOneQuota() async throws {
        let loop = try SocketEventLoop()
        let quota = AcceptQuota(limit: 1, loop: loop)
        let (first, atFirst) = try Self.listen(with: quota, on: loop)
        let (second, atSecond) = try Self.listen(with: quota, on: loop)
        let client = try Self.connect(to: first.localAddress)
        var iterator = atFirst.makeAsyncIterator()
        let connection = try #require(await iterator.next())
        let other = try Self.connect(to: second.localAddress)
        #expect(quota.openCount == 1)
        connection.close()
        var otherIterator = atSecond.makeAsyncIterator()
        _ = try #require(await otherIterator.next())
        first.close()
        second.close()
        withExtendedLifetime((client, other)) {}
    }
}

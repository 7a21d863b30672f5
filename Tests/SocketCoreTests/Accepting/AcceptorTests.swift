import AsyncSocketsTesting
import SocketCore
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct AcceptorTests {
    /// The events of an acceptor.
    private enum Told: Sendable {
        case accepted(SocketDescriptor, from: SocketEndpoint)
        case paused(SystemError, seconds: Double)
        case closed
    }

    private static func listen(on loop: SocketEventLoop, host: String = "127.0.0.1") throws -> (Acceptor, AsyncStream<Told>) {
        let address = try SocketEndpoint.loopback(host)
        let (stream, continuation) = AsyncStream<Told>.makeStream()
        let receiver = Acceptor.Receiver(
            accepted: { continuation.yield(.accepted($0, from: $1)) },
            paused: { continuation.yield(.paused($0, seconds: $1)) },
            closed: { continuation.yield(.closed) }
        )
        let acceptor = try Acceptor(on: address, loop: loop, receiver: receiver)
        acceptor.start()
        return (acceptor, stream)
    }

    private static func connect(to address: SocketEndpoint) throws -> SocketDescriptor {
        let descriptor = try SocketDescriptor(streamOf: .ipv4)
        if case .failed(let error) = descriptor.connect(to: address) { throw error }
        return descriptor
    }

    /// Returns whether the acceptor closes without accepting a connection. Injected faults may pause it
    /// first.
    private static func isClosed(_ told: AsyncStream<Told>) async -> Bool {
        for await event in told {
            if case .paused = event { continue }
            if case .closed = event { return true }
            return false
        }
        return false
    }

    @Test func everyConnectionIsAcceptedThoughTheyComeAtOnce() async throws {
        let loop = try SocketEventLoop()
        let (acceptor, told) = try Self.listen(on: loop)
        let clients = try (0..<200).map { _ in try Self.connect(to: acceptor.localAddress) }
        var ports: Set<UInt16> = []
        for await event in told {
            if case .accepted(_, let peer) = event, let port = peer.port { ports.insert(port) }
            if ports.count == clients.count { break }
        }
        #expect(ports == Set(clients.compactMap { $0.localAddress?.port }))
        acceptor.close()
    }

    /// Handling an accepted connection may take long, for example because of a handshake.
    @Test func othersHaveTheirTurnsWhenAConnectionTakesLong() async throws {
        let loop = try SocketEventLoop()
        let (turns, continuation) = AsyncStream<String>.makeStream()
        let receiver = Acceptor.Receiver(
            accepted: { _, _ in
                loop.run { continuation.yield("other") }
                let end = ContinuousClock.now + .milliseconds(2)
                while ContinuousClock.now < end {}
                continuation.yield("accepted")
            }, paused: { _, _ in }, closed: {})
        let acceptor = try Acceptor(on: SocketEndpoint.loopback("127.0.0.1"), loop: loop, receiver: receiver)
        let clients = try (0..<5).map { _ in try Self.connect(to: acceptor.localAddress) }
        acceptor.start()
        var order: [String] = []
        for await turn in turns {
            order.append(turn)
            if order.count == 2 * clients.count { break }
        }
        // The first turn may be two: for the start, and for the event.
        let before = try #require(order.firstIndex(of: "other"))
        #expect(before <= 2, "\(order)")
        acceptor.close()
        withExtendedLifetime(clients) {}
    }

    @Test func aCloseBeforeTheStartCounts() async throws {
        let loop = try SocketEventLoop()
        let address = try SocketEndpoint.loopback("127.0.0.76")
        let (told, continuation) = AsyncStream<Told>.makeStream()
        let receiver = Acceptor.Receiver(
            accepted: { continuation.yield(.accepted($0, from: $1)) }, paused: { _, _ in },
            closed: { continuation.yield(.closed) })
        let acceptor = try Acceptor(on: address, loop: loop, receiver: receiver)
        acceptor.close()
        acceptor.start()
        let quiet = Acceptor.Receiver(accepted: { _, _ in }, paused: { _, _ in }, closed: {})
        let second = try Acceptor(on: acceptor.localAddress, loop: loop, receiver: quiet)
        second.discard()
        #expect(await Self.isClosed(told))
    }

    @Test func closingIsToldOnceAndFreesThePort() async throws {
        let loop = try SocketEventLoop()
        // An address that no other test uses, so that the port stays free.
        let (acceptor, told) = try Self.listen(on: loop, host: "127.0.0.77")
        let address = acceptor.localAddress
        acceptor.close()
        acceptor.close()
        #expect(await Self.isClosed(told))
        #expect(loop.registrationCount == 0)
        let quiet = Acceptor.Receiver(accepted: { _, _ in }, paused: { _, _ in }, closed: {})
        let second = try Acceptor(on: address, loop: loop, receiver: quiet)
        #expect(second.localAddress == address)
        second.discard()
    }
}

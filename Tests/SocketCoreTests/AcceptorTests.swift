import Dispatch
import Glibc
import SocketBuffers
import SocketCore
import Testing

@Suite(.timeLimit(.minutes(1))) struct AcceptorTests {
    /// What a listener tells its owner.
    private enum Told: Sendable {
        case accepted(SocketDescriptor, from: SocketAddress)
        case paused(SystemError, seconds: Double)
        case closed
    }

    private static func listen(on loop: EventLoop) throws -> (Acceptor, AsyncStream<Told>) {
        let (stream, continuation) = AsyncStream<Told>.makeStream()
        return (try listen(on: loop) { continuation.yield($0) }, stream)
    }

    private static func listen(on loop: EventLoop, tell: @escaping @Sendable (Told) -> Void) throws -> Acceptor {
        let address = try #require(SocketAddress(literal: "127.0.0.1", port: 0))
        let receiver = Acceptor.Receiver(
            accepted: { tell(.accepted($0, from: $1)) },
            paused: { tell(.paused($0, seconds: $1)) },
            closed: { tell(.closed) }
        )
        let acceptor = try Acceptor(on: address, loop: loop, receiver: receiver)
        try acceptor.start()
        return acceptor
    }

    /// What was told, for a thread that waits: with no descriptor left, libdispatch cannot count its workers and traps as soon as
    /// there is work for more of them, so the test below gives it none.
    private final class Mailbox: Sendable {
        private let told = Locked<[Told]>([])
        private let arrivals = DispatchSemaphore(value: 0)

        func put(_ event: Told) {
            told.withLock { $0.append(event) }
            arrivals.signal()
        }

        func next() -> Told {
            arrivals.wait()
            return told.withLock { $0.removeFirst() }
        }
    }

    private static func connect(to address: SocketAddress) throws -> SocketDescriptor {
        let descriptor = try SocketDescriptor(streamOf: .ipv4)
        if case .failed(let error) = descriptor.connect(to: address) { throw error }
        return descriptor
    }

    @Test func everyConnectionIsAcceptedThoughTheyComeAtOnce() async throws {
        let loop = try EventLoop()
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

    @Test func closingIsToldOnceAndFreesThePort() async throws {
        let loop = try EventLoop()
        let (acceptor, told) = try Self.listen(on: loop)
        let address = acceptor.localAddress
        acceptor.close()
        acceptor.close()
        var iterator = told.makeAsyncIterator()
        guard case .closed = await iterator.next() else {
            Issue.record("not told of the close")
            return
        }
        #expect(loop.registrationCount == 0)
        let quiet = Acceptor.Receiver(accepted: { _, _ in }, paused: { _, _ in }, closed: {})
        #expect(try Acceptor(on: address, loop: loop, receiver: quiet).localAddress == address)
    }

    /// In a process of its own, since it uses up the descriptors.
    @Test func anExhaustedDescriptorTablePausesTheListenerAndLosesNoConnection() async {
        await #expect(processExitsWith: .success) {
            let loop = try EventLoop()
            let mailbox = Mailbox()
            let acceptor = try Self.listen(on: loop) { mailbox.put($0) }
            var client: SocketDescriptor? = try Self.connect(to: acceptor.localAddress)
            guard case .accepted(let first, _) = mailbox.next() else { throw SystemError("accept4", errno: 0) }
            // The last descriptors but one are taken away; that one becomes a client whose connection cannot be accepted.
            var limit = rlimit(rlim_cur: 64, rlim_max: 64)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            var taken: [CInt] = []
            while case let descriptor = dup(0), descriptor >= 0 { taken.append(descriptor) }
            close(taken.removeLast())
            let second = try Self.connect(to: acceptor.localAddress)

            var pauses: [(length: Double, at: Deadline)] = []
            while pauses.count < 3, case .paused(let error, let seconds) = mailbox.next() {
                guard error.errno == EMFILE else { throw error }
                pauses.append((seconds, .now))
            }
            guard pauses.map(\.length) == [0.05, 0.1, 0.2] else { throw SystemError("pauses \(pauses)", errno: 0) }
            // It did not spin: each try came no sooner than the pause before it said.
            for (earlier, later) in zip(pauses, pauses.dropFirst()) where later.at.seconds(since: earlier.at) < earlier.length {
                throw SystemError("a pause was cut short", errno: 0)
            }
            client = nil
            first.close()
            guard case .accepted(_, let peer) = mailbox.next(), peer == second.localAddress else {
                throw SystemError("the waiting connection is lost", errno: 0)
            }
            _ = client
        }
    }
}

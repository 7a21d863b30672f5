import AsyncSockets
import Dispatch
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Programs that would deadlock or trap with one queue per socket.
@Suite(.timeLimit(.patient), .serialized) struct SocketQueueTests {
    /// Echoes everything. Inline, so its reads and writes are requested on the event loop.
    private final class Echo: AsyncSocketDelegate, Sendable {
        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            children.withLock { $0.append(newSocket) }
            newSocket.readData(withTimeout: -1, tag: 0)
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            socket.write(data, withTimeout: -1, tag: 0)
            socket.readData(withTimeout: -1, tag: 0)
        }

        let children = Locked<[AsyncSocket]>([])
    }

    /// Writes and reads forever without storing the data. A recorder would store a gigabyte.
    private final class Flood: AsyncSocketDelegate, Sendable {
        let received = Locked(0)

        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
            socket.write(Data(count: 1 << 20), withTimeout: -1, tag: 0)
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            received.withLock { $0 += data.count }
            socket.readData(withTimeout: -1, tag: 0)
        }
    }

    /// Forwards each message to its partner, on the callback's thread.
    private final class Relay: AsyncSocketDelegate, @unchecked Sendable {
        // Unchecked: `partner` is set before the first message.
        weak var partner: AsyncSocket?
        private let count = Locked(0)
        private let goal: Int
        private let done: @Sendable () -> Void

        init(goal: Int, done: @escaping @Sendable () -> Void) {
            self.goal = goal
            self.done = done
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            let isDone = count.withLock { count in
                count += 1
                return count == goal
            }
            if isDone { return done() }
            partner?.write(data, withTimeout: -1, tag: 0)
            socket.readData(toLength: 8, withTimeout: -1, tag: 0)
        }
    }

    /// Two links. The far ends echo, and the near ends, each on its own loop, forward everything to each
    /// other.
    @Test(arguments: [(Link.Delivery.inline, 100_000), (.delegateQueue, 20_000), (.socketQueue, 20_000)])
    func twoSocketsRelayToEachOtherInBothDirections(_ delivery: Link.Delivery, messages: Int) async throws {
        let echo = Echo()
        let listener = AsyncSocket(inlineDelegate: echo)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let (finished, continuation) = AsyncStream<Void>.makeStream()
        let relays = (0..<2).map { _ in Relay(goal: messages / 2) { continuation.yield() } }
        var sockets: [AsyncSocket] = []
        for relay in relays {
            let socket = AsyncSocket(relay, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            sockets.append(socket)
        }
        relays[0].partner = sockets[1]
        relays[1].partner = sockets[0]
        for socket in sockets {
            socket.readData(toLength: 8, withTimeout: -1, tag: 0)
            // Keep several messages in flight in each direction, so that both loops are busy at the same
            // time.
            for _ in 0..<8 { socket.write(Data(count: 8), withTimeout: -1, tag: 0) }
        }
        var iterator = finished.makeAsyncIterator()
        await iterator.next()
        await iterator.next()
        // Delegates are weak references, and an optimized build releases objects after their last use.
        withExtendedLifetime((echo, listener, relays, sockets)) {}
    }

    /// Each side's callback closes the other side.
    @Test(arguments: Link.Delivery.allCases)
    func eachSidesCallbackMayCloseTheOther(_ delivery: Link.Delivery) async throws {
        for _ in 0..<200 {
            let other = Locked<(client: AsyncSocket?, server: AsyncSocket?)>((nil, nil))
            let atClient = Recorder { _, told in
                if case .read = told { other.withLock { $0.server }?.disconnect() }
            }
            let atServer = Recorder { _, told in
                if case .read = told { other.withLock { $0.client }?.disconnect() }
            }
            let link = try await Link.make(delivery, atClient: atClient, atServer: atServer)
            other.withLock { $0 = (link.client, link.server) }
            link.client.readData(withTimeout: .patient, tag: 0)
            link.server.readData(withTimeout: .patient, tag: 0)
            link.client.write(Data("x"), withTimeout: .patient, tag: 0)
            link.server.write(Data("y"), withTimeout: .patient, tag: 0)
            try await waitForEnd(of: atClient)
            try await waitForEnd(of: atServer)
        }
    }

    private func waitForEnd(of recorder: Recorder) async throws {
        while true {
            if case .disconnected = await recorder.next() { return }
        }
    }

    @Test func socketQueuesMayShareATargetQueue() async throws {
        let target = DispatchQueue(label: "target")
        let echo = Echo()
        let listener = AsyncSocket(inlineDelegate: echo)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let recorders = (0..<8).map { _ in Recorder() }
        let sockets = recorders.map {
            AsyncSocket(inlineDelegate: $0, socketQueue: DispatchQueue(label: "socket", target: target))
        }
        for (socket, recorder) in zip(sockets, recorders) {
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            try await recorder.connected()
        }
        for round in 0..<100 {
            for socket in sockets {
                socket.write(Data("round \(round)\r\n"), withTimeout: .patient, tag: round)
                socket.readData(to: .lineEnd, withTimeout: .patient, tag: round)
            }
            for recorder in recorders {
                let text = try await recorder.readText()
                #expect(text == "round \(round)\r\n")
            }
        }
        withExtendedLifetime((echo, listener)) {}
    }

    @Test func callsOnTheSocketQueueItselfDoNotWait() async throws {
        let queue = DispatchQueue(label: "socket")
        let link = try await Link.make(.delegateQueue)
        let recorder = Recorder()
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue, socketQueue: queue)
        let port = link.listener.localPort
        await withCheckedContinuation { continuation in
            queue.async {
                try? socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
                socket.write(Data("from the queue"), withTimeout: .patient, tag: 3)
                continuation.resume()
            }
        }
        try await recorder.connected()
        #expect(try await recorder.wrote() == 3)
    }

    /// The callback needs a lock that is held while calling `write`. This must not deadlock.
    @Test(arguments: Link.Delivery.allCases)
    func aCallUnderALockThatTheCallbackTakesTooDoesNotDeadlock(_ delivery: Link.Delivery) async throws {
        let lock = Locked(0)
        let atClient = Recorder { _, told in
            if case .wrote = told { lock.withLock { $0 += 1 } }
        }
        let link = try await Link.make(delivery, atClient: atClient)
        let rounds = 2_000
        link.server.readData(toLength: rounds, withTimeout: .patient, tag: 0)
        for round in 0..<rounds {
            lock.withLock { _ in link.client.write(Data("x"), withTimeout: .patient, tag: round) }
        }
        #expect(try await link.atServer.readData().count == rounds)
        for round in 0..<rounds { #expect(try await atClient.wrote() == round) }
        #expect(lock.withLock { $0 } == rounds)
    }

    @Test func inlineCallbacksNeverRunInsideTheUsersOwnCall() async throws {
        let isInsideCall = Locked(false)
        let violations = Locked(0)
        let caller = Locked<UInt>(0)
        let atClient = Recorder { _, _ in
            let isViolation = isInsideCall.withLock { $0 } && caller.withLock { $0 } == UInt(pthread_self())
            if isViolation { violations.withLock { $0 += 1 } }
        }
        let link = try await Link.make(.inline, atClient: atClient)
        for round in 0..<500 {
            caller.withLock { $0 = UInt(pthread_self()) }
            isInsideCall.withLock { $0 = true }
            link.client.write(Data("x"), withTimeout: .patient, tag: round)
            isInsideCall.withLock { $0 = false }
            #expect(try await atClient.wrote() == round)
        }
        #expect(violations.withLock { $0 } == 0)
    }

    /// One peer floods a reader on the same loops. The others still receive their echoes.
    @Test func aFloodedConnectionDoesNotStarveTheOthers() async throws {
        let echo = Echo()
        let listener = AsyncSocket(inlineDelegate: echo)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let flood = try await Link.make(.inline)
        let (writer, reader) = (Flood(), Flood())
        flood.client.changeDelegate(to: writer)
        flood.server.changeDelegate(to: reader)
        flood.server.readData(withTimeout: -1, tag: 0)
        flood.client.write(Data(count: 1 << 20), withTimeout: -1, tag: 0)
        let recorders = (0..<8).map { _ in Recorder() }
        let sockets = recorders.map { AsyncSocket(inlineDelegate: $0) }
        for (socket, recorder) in zip(sockets, recorders) {
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            try await recorder.connected()
            for _ in 0..<50 {
                socket.write(Data("ping"), withTimeout: .patient, tag: 0)
                socket.readData(toLength: 4, withTimeout: .patient, tag: 0)
                #expect(try await recorder.readText() == "ping")
            }
        }
        flood.client.disconnect()
        #expect(reader.received.withLock { $0 } > 1 << 20)
        withExtendedLifetime((echo, listener, flood, writer, reader)) {}
    }

    @Test func closingFromAnotherThreadWhileEventsAreInFlightLosesNoEnd() async throws {
        let echo = Echo()
        let listener = AsyncSocket(inlineDelegate: echo)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        for round in 0..<300 {
            let recorder = Recorder()
            let socket = AsyncSocket(recorder, calledOn: round % 2 == 0 ? nil : DispatchQueue(label: "delegate"))
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            socket.readData(toLength: 100_000, withTimeout: -1, tag: 0)
            for _ in 0..<10 { socket.write(Data(count: 10_000), withTimeout: -1, tag: 0) }
            if round % 3 == 0 { try await recorder.connected() }
            DispatchQueue.global().async { socket.disconnect() }
            try await waitForEnd(of: recorder)
            #expect(recorder.unread.isEmpty)
            #expect(socket.isDisconnected)
        }
        withExtendedLifetime((echo, listener)) {}
    }
}

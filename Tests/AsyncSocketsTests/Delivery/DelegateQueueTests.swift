import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Guarantees for delegate queues.
@Suite(.timeLimit(.patient)) struct DelegateQueueTests {
    /// Establishes a connection on `loop` and waits for it. By then the loop has handled all earlier events.
    private func pass(_ loop: SocketEventLoop, to peer: ScriptedPeer) async throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.stay(on: loop)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        withExtendedLifetime(socket) {}
    }

    @Test func aBlockOfTheUsersKeepsItsPlaceAmongTheEvents() async throws {
        let go = try TestSignal()
        let peer = try ScriptedPeer.listening([.send("a"), .wait(for: go), .send("b")])
        let other = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let loop = try SocketEventLoop()
        let queue = DispatchQueue(label: "delegate")
        let order = Locked<[String]>([])
        let recorder = Recorder { _, told in
            if case .read(let data, _) = told { order.withLock { $0.append(String(decoding: data, as: UTF8.self)) } }
        }
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        socket.stay(on: loop)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        queue.suspend()
        for tag in 1...3 { socket.readData(toLength: 1, withTimeout: .patient, tag: tag) }
        try await eventually("the first byte has come") { socket.readProgress?.tag == 2 }
        try await pass(loop, to: other)
        queue.async { order.withLock { $0.append("block") } }
        go.fire()
        try await eventually("the second byte has come") { socket.readProgress?.tag == 3 }
        queue.resume()
        for expected in ["a", "b"] { #expect(try await recorder.readText() == expected) }
        #expect(order.withLock { $0 } == ["a", "block", "b"])
    }

    private static let key = DispatchSpecificKey<String>()

    /// Returns a queue that callbacks can identify by its name.
    private func namedQueue(_ name: String) -> DispatchQueue {
        let queue = DispatchQueue(label: name)
        queue.setSpecific(key: Self.key, value: name)
        return queue
    }

    /// An established connection moves to another queue, and then to none. Later events are delivered there.
    @Test func theQueueMayChange() async throws {
        let queues = [namedQueue("first"), namedQueue("second"), nil]
        let peer = try ScriptedPeer.listening([.send("abc"), .expectEnd])
        let places = Locked<[String?]>([])
        let recorder = Recorder { _, told in
            guard case .read = told else { return }
            places.withLock { $0.append(DispatchQueue.getSpecific(key: Self.key)) }
        }
        let socket = AsyncSocket(recorder, calledOn: queues[0])
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        for (tag, queue) in queues.enumerated() {
            socket.call(recorder, on: queue)
            socket.readData(toLength: 1, withTimeout: .patient, tag: tag)
            _ = try await recorder.readData()
        }
        #expect(places.withLock { $0 } == ["first", "second", nil])
        socket.disconnect()
    }

    /// Moves to another queue in a read callback, and forwards the delivered data.
    private final class Mover: AsyncSocketDelegate, Sendable {
        private let recorder: Recorder
        private let queue: @Sendable (Int) -> DispatchQueue?

        init(_ recorder: Recorder, queueAfter: @escaping @Sendable (_ tag: Int) -> DispatchQueue?) {
            self.recorder = recorder
            queue = queueAfter
        }

        func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
            recorder.socket(socket, didConnectToHost: host, port: port)
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            if let queue = queue(tag) { socket.setDelegate(self, delegateQueue: queue) }
            recorder.socket(socket, didRead: data, withTag: tag)
        }
    }

    /// More bytes are already available. They must not be delivered in the same delivery as the callback.
    @Test func aQueueThatIsSetInACallbackCountsForWhatFollows() async throws {
        let queue = namedQueue("queue")
        let areQueued = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: areQueued), .send("abc"), .expectEnd])
        let places = Locked<[String?]>([])
        let recorder = Recorder()
        let mover = Mover(recorder) { tag in
            places.withLock { $0.append(DispatchQueue.getSpecific(key: Self.key)) }
            return tag == 0 ? queue : nil
        }
        let socket = AsyncSocket(inlineDelegate: mover)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        for tag in 0..<3 { socket.readData(toLength: 1, withTimeout: .patient, tag: tag) }
        areQueued.fire()
        for _ in 0..<3 { _ = try await recorder.readData() }
        #expect(places.withLock { $0 } == [nil, "queue", "queue"])
        socket.disconnect()
    }

    /// The delegate moves to another queue within a callback, and its next event is queued while the callback
    /// is still running. It does not overtake the events of the first batch, and no event is lost.
    @Test(arguments: [true, false])
    func eventsStayInOrderWhenTheDelegateMoves(toQueue: Bool) async throws {
        let queues = [namedQueue("first"), namedQueue("second")]
        let more = try TestSignal()
        let peer = try ScriptedPeer.listening([.send("abc"), .wait(for: more), .send("d"), .close])
        let order = Locked("")
        let mayGoOn = DispatchSemaphore(value: 0)
        let mover = Locked<Recorder?>(nil)
        let recorder = Recorder { socket, told in
            switch told {
            case .read(let data, let tag):
                order.withLock { $0 += String(decoding: data, as: UTF8.self) }
                guard tag == 0, let recorder = mover.withLock({ $0 }) else { return }
                if toQueue { socket.setDelegate(recorder, delegateQueue: queues[1]) } else { socket.setInlineDelegate(recorder) }
                more.fire()
                mayGoOn.wait()
            case .disconnected: order.withLock { $0 += "." }
            default: break
            }
        }
        mover.withLock { $0 = recorder }
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queues[0])
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await recorder.connected()
        queues[0].suspend()
        for tag in 0..<4 { socket.readData(toLength: 1, tag: tag) }
        socket.readData(toLength: 1, tag: 4)
        try await eventually("three bytes have come") { socket.readProgress?.tag == 3 }
        queues[0].resume()
        try await eventually("the end has come") { socket.isDisconnected }
        // Gives the later event the chance to overtake.
        queues[1].sync {}
        mayGoOn.signal()
        try await eventually("all is told: \(order.withLock { $0 })") { order.withLock { $0.count } == 5 }
        #expect(order.withLock { $0 } == "abcd.")
        mover.withLock { $0 = nil }
    }

    /// The last reference to the old delegate is released while the socket is looking for the new one. Its
    /// deinit may call the socket.
    @Test(arguments: [true, false])
    func aDelegateMayCallTheSocketWhenItGoes(inline: Bool) async throws {
        final class Owner: Sendable { let delegate = Locked<Caller?>(nil) }
        final class Caller: AsyncSocketDelegate, Sendable {
            let socket: AsyncSocket
            let owner: Owner
            let next: Recorder
            init(_ socket: AsyncSocket, _ owner: Owner, _ next: Recorder) {
                (self.socket, self.owner, self.next) = (socket, owner, next)
            }
            deinit { _ = (socket.isConnected, socket.delegateQueue) }
            func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
                socket.call(next, on: socket.delegateQueue)
                owner.delegate.withLock { $0 = nil }
            }
        }
        let go = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: go), .send("ab"), .close])
        let (recorder, owner, socket) = (Recorder(), Owner(), AsyncSocket())
        socket.call(recorder, on: inline ? nil : namedQueue("queue"))
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await recorder.connected()
        owner.delegate.withLock { $0 = Caller(socket, owner, recorder) }
        if let caller = owner.delegate.withLock({ $0 }) { socket.call(caller, on: socket.delegateQueue) }
        for tag in 0..<2 { socket.readData(toLength: 1, tag: tag) }
        go.fire()
        #expect(try await recorder.readText() == "b")
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
    }

    /// The disconnect event of one connection is delivered when the socket already has another connection and
    /// another queue.
    @Test func theEndIsToldOnTheQueueThatTheSocketHasByThen() async throws {
        let peers = try (0..<3).map { _ in try ScriptedPeer.listening([.wait(for: TestSignal())]) }
        let loop = try SocketEventLoop()
        let (isBusy, mayGoOn) = (try TestSignal(), DispatchSemaphore(value: 0))
        let blocker = Recorder { _, told in
            guard case .connected = told else { return }
            isBusy.fire()
            mayGoOn.wait()
        }
        let places = Locked<[String?]>([])
        let recorder = Recorder { _, told in
            if case .disconnected = told { places.withLock { $0.append(DispatchQueue.getSpecific(key: Self.key)) } }
        }
        let (socket, other) = (AsyncSocket(inlineDelegate: recorder), AsyncSocket(inlineDelegate: blocker))
        for socket in [socket, other] { socket.stay(on: loop) }
        try socket.connect(toHost: "127.0.0.1", onPort: peers[0].port, withTimeout: .patient)
        try await recorder.connected()
        try other.connect(toHost: "127.0.0.1", onPort: peers[1].port, withTimeout: .patient)
        try await isBusy.wait()
        socket.disconnect()
        try socket.connect(toHost: "127.0.0.1", onPort: peers[2].port, withTimeout: .patient)
        socket.call(recorder, on: namedQueue("queue"))
        mayGoOn.signal()
        #expect(try await recorder.disconnected() == nil)
        try await recorder.connected()
        #expect(places.withLock { $0 } == ["queue"])
        withExtendedLifetime(other) {}
    }

    /// The delegate no longer has a queue by then, and the previous one is suspended.
    @Test func theEndDoesNotWaitForTheQueueOfItsTime() async throws {
        let peers = try (0..<2).map { _ in try ScriptedPeer.listening([.wait(for: TestSignal())]) }
        let (recorder, queue) = (Recorder(), DispatchQueue(label: "first"))
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: peers[0].port, withTimeout: .patient)
        try await recorder.connected()
        queue.sync {}
        queue.suspend()
        defer { queue.resume() }
        // Runs inside the turn of the first connection, which ends when this returns.
        socket.perform { _ in
            socket.disconnect()
            try? socket.connect(toHost: "127.0.0.1", onPort: peers[1].port, withTimeout: .patient)
            socket.setInlineDelegate(recorder)
        }
        try await eventually("the end and the beginning are told") { recorder.unread.count == 2 }
        #expect(try await recorder.disconnected() == nil)
        try await recorder.connected()
        socket.disconnect()
    }

    /// Many connections share one queue, with one block per batch of events. Each byte arrives once and in
    /// order.
    @Test func connectionsThatShareAQueueKeepTheirOrder() async throws {
        let queue = DispatchQueue(label: "delegate")
        let loop = try SocketEventLoop()
        let text = String(repeating: "0123456789", count: 20)
        let atServer = Recorder { socket, told in
            switch told {
            case .accepted(let child): child.readData(withTimeout: -1, maxLength: 3, tag: 0)
            case .read(let data, _):
                socket.write(data, withTimeout: -1, tag: 0)
                socket.readData(withTimeout: -1, maxLength: 3, tag: 0)
            default: break
            }
        }
        let listener = AsyncSocket(delegate: atServer, delegateQueue: queue)
        listener.stay(on: loop)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let port = listener.localPort
        try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<20 {
                group.addTask {
                    let recorder = Recorder()
                    let socket = AsyncSocket(inlineDelegate: recorder)
                    try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
                    try await recorder.connected()
                    for character in text { socket.write(Data(String(character).utf8), withTimeout: .patient, tag: 0) }
                    for _ in text { _ = try await recorder.wrote() }
                    socket.readData(toLength: text.utf8.count, withTimeout: .patient, tag: 1)
                    return try await recorder.readText()
                }
            }
            for try await answer in group { #expect(answer == text) }
        }
        withExtendedLifetime(listener) {}
    }
}

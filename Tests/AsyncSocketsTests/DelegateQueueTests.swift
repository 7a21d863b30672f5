import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

/// What a delegate queue may rely on.
@Suite(.timeLimit(.minutes(5))) struct DelegateQueueTests {
    /// Makes a connection on `loop` and waits for it: the batch of events before it has been handled then.
    private func pass(_ loop: EventLoop, to peer: ScriptedPeer) async throws {
        let recorder = Recorder()
        let socket = AsyncSocket(delegate: recorder)
        socket.stay(on: loop)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: 60)
        try await recorder.connected()
        withExtendedLifetime(socket) {}
    }

    @Test func aBlockOfTheUsersKeepsItsPlaceAmongTheEvents() async throws {
        let go = try TestSignal()
        let peer = try ScriptedPeer.listening([.send("a"), .wait(for: go), .send("b")])
        let other = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let loop = try EventLoop()
        let queue = DispatchQueue(label: "delegate")
        let order = Locked<[String]>([])
        let recorder = Recorder { _, told in
            if case .read(let data, _) = told { order.withLock { $0.append(String(decoding: data, as: UTF8.self)) } }
        }
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        socket.stay(on: loop)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: 60)
        try await recorder.connected()
        queue.suspend()
        for tag in 1...3 { socket.readData(toLength: 1, withTimeout: 60, tag: tag) }
        try await eventually("the first byte has come") { socket.readProgress?.tag == 2 }
        try await pass(loop, to: other)
        queue.async { order.withLock { $0.append("block") } }
        go.fire()
        try await eventually("the second byte has come") { socket.readProgress?.tag == 3 }
        queue.resume()
        for expected in ["a", "b"] { #expect(try await recorder.readText() == expected) }
        #expect(order.withLock { $0 } == ["a", "block", "b"])
    }

    /// Another queue, and none, for a connection that stands; what is told from then on is told there.
    @Test func theQueueMayChange() async throws {
        let key = DispatchSpecificKey<String>()
        let queues = ["first", "second"].map { name in
            let queue = DispatchQueue(label: name)
            queue.setSpecific(key: key, value: name)
            return queue
        }
        let peer = try ScriptedPeer.listening([.send("abc"), .expectEnd])
        let places = Locked<[String?]>([])
        let recorder = Recorder { _, told in
            guard case .read = told else { return }
            places.withLock { $0.append(DispatchQueue.getSpecific(key: key)) }
        }
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queues[0])
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: 60)
        try await recorder.connected()
        for (tag, queue) in [queues[0], queues[1], nil].enumerated() {
            socket.delegateQueue = queue
            socket.readData(toLength: 1, withTimeout: 60, tag: tag)
            _ = try await recorder.readData()
        }
        #expect(places.withLock { $0 } == ["first", "second", nil])
        socket.disconnect()
    }

    /// Many connections on one queue, which gets one block for all that a batch has brought: each byte arrives once and in order.
    @Test func connectionsThatShareAQueueKeepTheirOrder() async throws {
        let queue = DispatchQueue(label: "delegate")
        let loop = try EventLoop()
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
                    let socket = AsyncSocket(delegate: recorder)
                    try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: 60)
                    try await recorder.connected()
                    for character in text { socket.write(Data(String(character).utf8), withTimeout: 60, tag: 0) }
                    for _ in text { _ = try await recorder.wrote() }
                    socket.readData(toLength: text.utf8.count, withTimeout: 60, tag: 1)
                    return try await recorder.readText()
                }
            }
            for try await answer in group { #expect(answer == text) }
        }
        withExtendedLifetime(listener) {}
    }
}

import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct QueueTests {
    @Test func performRunsItsBlockSynchronouslyWithTheDescriptor() async throws {
        let wire = try await Wire.make()
        let socket = wire.client
        #expect(socket.socketFD() == -1 && socket.socket4FD() == -1)
        var descriptors: [Int32] = []
        socket.perform { descriptors = [socket.socketFD(), socket.socket4FD(), socket.socket6FD()] }
        #expect(descriptors.count == 3 && descriptors[0] >= 0 && descriptors[1] == descriptors[0] && descriptors[2] == -1)
        #expect(socket.socketFD() == -1)
    }

    @Test func performGivesAccessToTheDescriptorOfAListener() throws {
        let (listener, diary) = try Wire.listening()
        var isListening: Int32 = 0
        withExtendedLifetime(diary) {
            listener.perform {
                var size = socklen_t(MemoryLayout<Int32>.size)
                getsockopt(listener.socketFD(), SOL_SOCKET, SO_ACCEPTCONN, &isListening, &size)
            }
        }
        #expect(isListening == 1)
    }

    @Test func nestedCallsOfPerformDoNotDeadlock() async throws {
        let wire = try await Wire.make()
        var depth = 0
        wire.client.perform {
            wire.client.perform { depth += 1 }
            wire.server.perform { depth += 1 }
            depth += 1
        }
        #expect(depth == 3)
    }

    @Test func performWorksOnASocketThatIsNotInUse() {
        for socket in [GCDAsyncSocket(), GCDAsyncSocket(socketQueue: DispatchQueue(label: "socket"))] {
            var descriptor: Int32?
            socket.perform { descriptor = socket.socketFD() }
            #expect(descriptor == -1)
        }
    }

    @Test func performOnTheSocketsOwnQueueRunsAtOnce() async throws {
        let queue = DispatchQueue(label: "socket")
        let socket = GCDAsyncSocket(socketQueue: queue)
        var wasCalled = false
        queue.sync { socket.perform { wasCalled = true } }
        #expect(wasCalled)
    }

    @Test func blocksFromManyThreadsRunOneAtATime() async throws {
        let wire = try await Wire.make()
        var count = 0
        nonisolated(unsafe) let socket = wire.client
        nonisolated(unsafe) let counter = UnsafeMutablePointer<Int>.allocate(capacity: 1)
        counter.initialize(to: 0)
        defer { counter.deallocate() }
        DispatchQueue.concurrentPerform(iterations: 8) { _ in
            for _ in 0..<200 { socket.perform { counter.pointee += 1 } }
        }
        count = counter.pointee
        #expect(count == 1600)
    }

    @Test func theSocketQueueMayBeTheDelegateQueue() async throws {
        let peer = try ScriptedPeer.listening([.send("one\ntwo\n"), .expect("ok")])
        let queue = DispatchQueue(label: "both")
        let diary = Diary()
        let socket = GCDAsyncSocket(delegate: diary, delegateQueue: queue, socketQueue: queue)
        diary.reaction = { line, socket in
            dispatchPrecondition(condition: .onQueue(queue))
            socket.perform { if line.hasPrefix("read"), socket.socketFD() < 0 { Issue.record("there is no descriptor") } }
            if line == "read 2: two\n" { socket.write(Data("ok".utf8), withTimeout: -1, tag: 3) }
        }
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 1)
        socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 2)
        try await diary.wait(for: "wrote 3")
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test(arguments: [false, true]) func aConcurrentDelegateQueueKeepsCallbacksInOrder(isGlobal: Bool) async throws {
        let text = (0..<300).map { "\($0)\n" }.joined()
        let peer = try ScriptedPeer.listening([.send(text)])
        let queue = isGlobal ? DispatchQueue.global() : DispatchQueue(label: "concurrent", attributes: .concurrent)
        let diary = Diary()
        let socket = GCDAsyncSocket(delegate: diary, delegateQueue: queue)
        diary.reaction = { _, _ in dispatchPrecondition(condition: .onQueue(queue)) }
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        for tag in 0..<300 { socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: tag) }
        try await diary.wait(for: "read 299: 299\n")
        #expect(diary.lines.filter { $0.hasPrefix("read") } == (0..<300).map { "read \($0): \($0)\n" })
        #expect(socket.delegateQueue === queue)
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func callbacksRunOnTheNewDelegateQueue() async throws {
        let wire = try await Wire.make()
        let (other, key) = (DispatchQueue(label: "other"), DispatchSpecificKey<Int>())
        other.setSpecific(key: key, value: 5)
        let number = Locked<Int?>(nil)
        wire.atClient.reaction = { line, _ in
            guard line == "read 1: x" else { return }
            number.withLock { $0 = DispatchQueue.getSpecific(key: key) }
        }
        wire.client.delegateQueue = other
        wire.client.readData(toLength: 1, withTimeout: -1, tag: 1)
        wire.server.write(Data("x".utf8), withTimeout: -1, tag: 0)
        try await wire.atClient.wait(for: "read 1: x")
        try await eventually("the number is noted") { number.withLock { $0 == 5 } }
    }

    @Test func withoutADelegateQueueTheConnectionWorksWithoutCallbacks() async throws {
        let wire = try await Wire.make()
        wire.client.delegateQueue = nil
        wire.client.write(Data("quiet".utf8), withTimeout: -1, tag: 1)
        wire.server.readData(toLength: 5, withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: quiet")
        #expect(wire.client.isConnected && wire.atClient.lines == ["connected to 127.0.0.1"])
        wire.client.delegateQueue = wire.queue
        wire.client.readData(toLength: 1, withTimeout: -1, tag: 2)
        wire.server.write(Data("x".utf8), withTimeout: -1, tag: 0)
        try await wire.atClient.wait(for: "read 2: x")
    }
}

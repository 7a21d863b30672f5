import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct EndTests {
    @Test func disconnectTakesEffectImmediatelyAndIsReportedOnce() async throws {
        let wire = try await Wire.make()
        wire.client.readData(withTimeout: -1, tag: 1)
        wire.client.disconnect()
        #expect(wire.client.isDisconnected && !wire.client.isConnected && wire.client.connectedHost == nil)
        wire.client.disconnect()
        #expect(try await wire.atClient.end() == nil)
        wire.queue.sync {}
        #expect(wire.atClient.lines.filter { $0 == "disconnected" }.count == 1 && wire.atClient.lines.last == "disconnected")
        wire.server.readData(withTimeout: -1, tag: 1)
        #expect(Spellings.isClosed(try await wire.atServer.end()).byCast)
    }

    @Test func theDisconnectCallbackIsQueuedWhenDisconnectReturns() throws {
        for round in 1...300 {
            let queue = DispatchQueue(label: "listener")
            let (listener, diary) = try Wire.listening(queue)
            listener.disconnect()
            queue.sync {}
            #expect(diary.lines == ["disconnected"], "round \(round)")
            // The end is not reported again, and the socket can be reused.
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            listener.disconnect()
            queue.sync {}
            #expect(diary.lines == ["disconnected", "disconnected"], "round \(round)")
        }
    }

    @Test func aListenersEndComesOnceThoughItsDelegateMoves() async throws {
        for round in 1...100 {
            let (first, second) = (DispatchQueue(label: "first"), DispatchQueue(label: "second"))
            let gate = DispatchSemaphore(value: 0)
            let (listener, diary) = try Wire.listening(first)
            first.async { gate.wait() }
            listener.disconnect()
            if round.isMultiple(of: 2) { listener.delegateQueue = second }
            gate.signal()
            #expect(try await diary.end() == nil)
            first.sync {}
            // The next end is reported after all of this one.
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            listener.disconnect()
            try await eventually("the second end") { diary.lines.count == 2 }
            second.sync {}
            first.sync {}
            #expect(diary.lines == ["disconnected", "disconnected"], "round \(round)")
        }
    }

    @Test func aCloseByThePeerHasItsOwnErrorCode() async throws {
        let peer = try ScriptedPeer.listening([.send("bye"), .close])
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 3, withTimeout: -1, tag: 1)
        socket.readData(withTimeout: -1, tag: 2)
        let error = try await diary.end()
        #expect(error?.domain == GCDAsyncSocketErrorDomain && error?.code == 7)
        #expect(error?.localizedDescription == "Socket closed by remote peer")
        #expect(diary.lines == ["connected to 127.0.0.1", "read 1: bye", "disconnected"])
        _ = try await peer.finish()
    }

    @Test func aResetIsAPOSIXError() async throws {
        let peer = try ScriptedPeer.listening([.reset])
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(withTimeout: -1, tag: 1)
        let error = try await diary.end()
        #expect(error?.domain == NSPOSIXErrorDomain && error?.code == Int(ECONNRESET))
        _ = try await peer.finish()
    }

    @Test func aClosedReadStreamLeavesTheWriteStreamOpen() async throws {
        let peer = try ScriptedPeer.listening([.send("all"), .finish, .expect("answer")])
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 3, withTimeout: -1, tag: 1)
        try await diary.wait(for: "read stream closed")
        #expect(socket.isConnected)
        socket.write(Data("answer".utf8), withTimeout: -1, tag: 2)
        socket.disconnectAfterWriting()
        #expect(try await diary.end() == nil)
        #expect(diary.lines == ["connected to 127.0.0.1", "read 1: all", "read stream closed", "wrote 2", "disconnected"])
        _ = try await peer.finish()
    }

    @Test func d18AReadAfterTheReadStreamClosesIsDropped() async throws {
        let peer = try ScriptedPeer.listening([.send("all"), .finish, .expect("answer")])
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        // It would close the connection if it waited for its timeout.
        socket.readData(toLength: 5, withTimeout: -1, tag: 1)
        try await diary.wait(for: "read stream closed")
        socket.readData(withTimeout: 0, tag: 2)
        socket.write(Data("answer".utf8), withTimeout: -1, tag: 3)
        _ = try await peer.finish()
        try await diary.wait(for: "wrote 3")
        socket.disconnect()
        #expect(try await diary.end() == nil)
        #expect(!diary.has(prefix: "read 1") && !diary.has(prefix: "read 2") && !diary.has(prefix: "late"))
    }

    @Test func aReusedSocketKeepsItsSettings() async throws {
        let (listener, atListener) = try Wire.listening()
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.userData = "mine"
        socket.alternateAddressDelay = 1
        for round in 1...3 {
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
            socket.readData(toLength: 1, withTimeout: -1, tag: round)
            try await eventually("connection \(round) is there") { atListener.accepted.count == round }
            atListener.accepted[round - 1].write(Data("x".utf8), withTimeout: -1, tag: 0)
            try await diary.wait(for: "read \(round): x")
            socket.disconnect()
        }
        try await eventually("all ends are told") { diary.lines.filter { $0 == "disconnected" }.count == 3 }
        #expect(socket.userData as? String == "mine" && socket.alternateAddressDelay == 1)
        let round = ["connected to 127.0.0.1", "disconnected"]
        #expect(diary.lines.filter(round.contains) == round + round + round)
    }

    @Test func aDelegateConnectsAgainInItsLastCallback() async throws {
        let (listener, atListener) = try Wire.listening()
        let port = listener.localPort
        let diary = Diary()
        diary.reaction = { [unowned diary] line, socket in
            guard line == "disconnected", diary.lines.filter({ $0 == line }).count < 4 else { return }
            do { try socket.connect(toHost: "127.0.0.1", onPort: port) } catch { Issue.record(error) }
            socket.readData(withTimeout: -1, tag: 1)
        }
        atListener.reaction = { line, socket in if line == "accepted" { socket.disconnect() } }
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: port)
        socket.readData(withTimeout: -1, tag: 1)
        try await eventually("four connections have ended") { diary.lines.filter { $0 == "disconnected" }.count == 4 }
        #expect(diary.lines == (0..<4).flatMap { _ in ["connected to 127.0.0.1", "disconnected"] })
    }

    @Test func manyThreadsDisconnectAndOneEndIsTold() async throws {
        let wire = try await Wire.make()
        nonisolated(unsafe) let socket = wire.client
        DispatchQueue.concurrentPerform(iterations: 16) { number in
            socket.readData(withTimeout: -1, tag: number)
            socket.disconnect()
            socket.write(Data("late".utf8), withTimeout: -1, tag: number)
        }
        _ = try await wire.atClient.end()
        wire.client.delegateQueue?.sync {}
        #expect(wire.atClient.lines.filter { $0 == "disconnected" }.count == 1 && wire.client.isDisconnected)
    }

    @Test func readsOfTheOldConnectionAreNotServedByTheNew() async throws {
        let (listener, atListener) = try Wire.listening()
        let diary = Diary()
        let socket = makeSocket(diary)
        let buffer = NSMutableData()
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        for tag in 1...20 { socket.readData(withTimeout: -1, buffer: buffer, bufferOffset: 0, tag: tag) }
        try await eventually("the first is accepted") { atListener.accepted.count == 1 }
        socket.disconnect()
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        socket.readData(toLength: 3, withTimeout: -1, tag: 99)
        try await eventually("the second is accepted") { atListener.accepted.count == 2 }
        atListener.accepted[1].write(Data("new".utf8), withTimeout: -1, tag: 0)
        try await diary.wait(for: "read 99: new")
        #expect(diary.lines.filter { $0.hasPrefix("read") } == ["read 99: new"] && buffer.length == 0)
    }

    @Test func aReleasedSocketClosesWithoutACallback() async throws {
        let peer = try ScriptedPeer.listening([.expectEnd])
        let diary = Diary()
        var socket: GCDAsyncSocket? = makeSocket(diary)
        try socket?.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket?.readData(withTimeout: -1, tag: 1)
        socket?.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, buffer: NSMutableData(), bufferOffset: 0, tag: 2)
        try await diary.wait(for: "connected to 127.0.0.1")
        let queue = socket?.delegateQueue
        socket = nil
        _ = try await peer.finish()
        queue?.sync {}
        #expect(diary.lines == ["connected to 127.0.0.1"])
    }

    @Test func eventsOnTheirWayGoToTheDelegateThatIsSetWhenTheyArrive() async throws {
        let wire = try await Wire.make()
        let other = Diary()
        // The queue is blocked while the bytes arrive.
        let gate = DispatchSemaphore(value: 0)
        wire.queue.async { gate.wait() }
        let clientQueue = try #require(wire.client.delegateQueue)
        clientQueue.async { gate.wait() }
        wire.client.readData(toLength: 2, withTimeout: -1, tag: 1)
        wire.server.write(Data("hi".utf8), withTimeout: -1, tag: 1)
        wire.client.delegate = other
        gate.signal()
        gate.signal()
        try await other.wait(for: "read 1: hi")
        #expect(!wire.atClient.has("read 1: hi"))
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections that end at the same time as something else happens.
@Suite(.timeLimit(.patient)) struct CoincidenceTests {
    /// The peer sends a goodbye and closes. Our next write causes a reset, but the goodbye was received
    /// before.
    @Test(arguments: [false, true])
    func bytesBeforeAFINStayReadableThoughAWriteMeetsAReset(halfDuplex: Bool) async throws {
        let listener = try RawSocket.listening()
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = !halfDuplex
        try socket.connect(toAddress: listener.localAddress, withTimeout: .patient)
        try await recorder.connected()
        do {
            let peer = try listener.accepted()
            try peer.send("421 bye\r\n")
        }  // The peer's socket is closed here.
        // Wait until a write fails, which means that the peer's reset has arrived.
        socket.write(Data("Q"), withTimeout: .patient, tag: 1)
        #expect(try await recorder.wrote() == 1)
        let isReset = Locked(false)
        try await eventually("the reset has arrived") {
            socket.perform { descriptor in
                guard let descriptor else { return }
                var poll = pollfd(fd: descriptor, events: 0, revents: 0)
                if Glibc.poll(&poll, 1, 0) == 1, poll.revents & Int16(POLLHUP) != 0 { isReset.withLock { $0 = true } }
            }
            return isReset.withLock { $0 }
        }
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        #expect(try await recorder.readText() == "421 bye\r\n")
        if halfDuplex { socket.write(Data("more"), withTimeout: .patient, tag: 3) }
        #expect(try await recorder.disconnected() != nil)
    }

    /// The FIN is reported in one event together with the proxy's reply and more bytes than one recv returns.
    /// There is no further event for it.
    @Test func aFINThatIsAnnouncedWhileAProxyIsAskedIsNotForgotten() async throws {
        let loop = try SocketEventLoop()
        let gate = DispatchSemaphore(value: 0)
        let isHeld = AsyncStream<Void>.makeStream()
        let holder = Recorder { _, told in
            guard case .connected = told else { return }
            isHeld.continuation.yield()
            gate.wait()
        }
        let silent = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let (gone, asked, go) = (try TestSignal(), try TestSignal(), try TestSignal())
        let kind = ProxyScript.http
        let bytes = kind.success + [UInt8](repeating: 65, count: 40_000)
        let peer = try ScriptedPeer.listening(
            kind.untilRequest + [.fire(asked), .wait(for: go), .send(bytes), .finish, .fire(gone)])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.stay(on: loop)
        try socket.connect(through: peer, kind)
        try await asked.wait()
        let held = AsyncSocket(inlineDelegate: holder)
        held.stay(on: loop)
        try held.connect(toHost: "127.0.0.1", onPort: silent.port, withTimeout: .patient)
        for await _ in isHeld.stream { break }
        go.fire()
        try await gone.wait()
        gate.signal()
        socket.readData(toLength: 40_000, withTimeout: .patient, tag: 1)
        socket.readData(withTimeout: .patient, tag: 2)
        try await recorder.connected()
        #expect(try await recorder.readData().count == 40_000)
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
        silent.stop()
        withExtendedLifetime((holder, held)) {}
    }

    @Test func aListenerThatIsDisconnectedIsFreeAtOnce() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        for _ in 0..<50 {
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            #expect(!listener.isDisconnected)
            listener.disconnect()
            #expect(listener.isDisconnected)
        }
        for _ in 0..<50 { #expect(try await recorder.disconnected() == nil) }
    }

    @Test func everyBodyIsPerformedThoughTheConnectionIsOver() async throws {
        let link = try await Link.make()
        link.client.disconnect()
        _ = try await link.atClient.disconnected()
        let calls = AsyncStream<Int>.makeStream()
        @Sendable func step(_ number: Int) {
            calls.continuation.yield(number)
            if number < 100 { link.client.perform { _ in step(number + 1) } }
        }
        link.client.perform { _ in step(1) }
        for await number in calls.stream where number == 100 { break }
    }

    @Test func whatWaitsIsKnownBeforeTheConnectionAndNothingAfterItsEnd() async throws {
        let listener = try RawSocket.listening()
        let gate = DispatchSemaphore(value: 0)
        let address = try listener.localAddress
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.resolver = Resolver(concurrency: 1) { query in
            gate.wait()
            return .success([address.withPort(query.port)])
        }
        socket.writeHighWaterMark = 1000
        try socket.connect(toHost: "some.example", onPort: try listener.localPort, withTimeout: .patient)
        socket.write(Data(count: 20_000_000), withTimeout: -1, tag: 1)
        socket.readData(toLength: 10, withTimeout: -1, tag: 7)
        // The loop may be delivering the high-water mark meanwhile. It then processes the read afterwards.
        try await eventually("both are known") {
            socket.pendingWriteByteCount == 20_000_000 && socket.readProgress?.tag == 7
        }
        #expect(try await recorder.highWater() == 20_000_000)
        gate.signal()
        try await recorder.connected()
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        #expect(socket.pendingWriteByteCount == 0)
        #expect(socket.readProgress == nil && socket.writeProgress == nil)
    }

    /// The premature end of a file that has shrunk must not look like the end of the message.
    @Test func thePeerOfAFileThatShrinksSeesNoEndInGoodOrder() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try Data(count: 64 << 20).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        try link.client.write(contentsOfFile: file.path, withTimeout: .patient, tag: 0)
        guard case .wrotePartial = await link.atClient.next() else { throw Unexpected(description: "no progress") }
        try FileHandle(forWritingTo: file).truncate(atOffset: 32 << 20)
        link.server.readData(toLength: 64 << 20, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.disconnected()?.code == .connectionReset)
    }

    /// If sendfile sends some pages and then finds the connection closed, it returns a count but still raises
    /// SIGPIPE.
    @Test func aFileThatMeetsTheEndHalfwayDoesNotEndTheProcess() async throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try Data(count: 1 << 20).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        let address = try #require(SocketEndpoint(unixPath: path.path))
        let listener = try RawSocket.listening(on: address)
        defer { try? FileManager.default.removeItem(at: path) }
        for _ in 0..<100 {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            try socket.connect(toAddress: address, withTimeout: .patient)
            _ = try await recorder.connectedTo()
            let peer = Locked<RawSocket?>(try listener.accepted())
            let closing = Task.detached { peer.withLock { $0 = nil } }
            // Not aligned to a page, so that a call needs two rounds.
            for tag in 0..<8 { try socket.write(contentsOfFile: file.path, offset: 100, withTimeout: .patient, tag: tag) }
            await closing.value
            #expect(try await recorder.disconnected() != nil)
        }
    }
}

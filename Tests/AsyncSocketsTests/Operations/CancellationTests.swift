import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Cancelled operations, and their effect on other operations.
@Suite(.timeLimit(.patient)) struct CancellationTests {
    /// More than the kernel buffers of both sides hold.
    private static let more = pattern(16 << 20)

    private func start(isSecure: Bool, _ steps: [ScriptedPeer.Step]) async throws -> (AsyncSocket, Recorder, ScriptedPeer) {
        let settings = try TestCertificates.server()
        let peer = try ScriptedPeer.listening((isSecure ? [.startTLS(settings)] : []) + steps)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        if isSecure {
            try socket.beginTLS(settings: TestCertificates.client())
            try await recorder.secured()
        }
        return (socket, recorder, peer)
    }

    // MARK: - Reads

    @Test(arguments: [false, true])
    func aReadThatWaitsIsGone(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _, _) = try await start(isSecure: isSecure, [.wait(for: maySend), .send("onethree")])
        let operations = Operations()
        let one = operations.read(.length(3), on: socket)
        let two = operations.read(.length(3), on: socket)
        let three = operations.read(.length(5), on: socket)
        socket.cancel(two)
        #expect(try await two.outcome() == .cancelled)
        maySend.fire()
        #expect(try await one.value() == Data("one"))
        #expect(try await three.value() == Data("three"))
        #expect(two.outcomes == [.cancelled])
    }

    @Test(arguments: [false, true])
    func whatACancelledReadHadCollectedIsForTheNext(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _, _) = try await start(
            isSecure: isSecure, [.send("line\r\nre"), .wait(for: maySend), .send("st")])
        for goal in [ReadPacket.Goal.length(100), .end, .delimiter(Data("none"))] {
            let operations = Operations()
            let read = operations.read(goal, on: socket)
            try await eventually("eight bytes are there") { socket.readProgress?.bytesDone == 8 }
            socket.cancel(read)
            #expect(try await read.outcome() == .cancelled)
        }
        let operations = Operations()
        let line = operations.read(.delimiter(.lineEnd), on: socket)
        let rest = operations.read(.length(4), on: socket)
        #expect(try await line.value() == Data("line\r\n"))
        maySend.fire()
        #expect(try await rest.value() == Data("rest"))
    }

    /// A waiter receives only the error, so its bytes must not be lost.
    @Test(arguments: [false, true])
    func whatALateReadHadCollectedIsForTheNext(isSecure: Bool) async throws {
        let (socket, _, _) = try await start(isSecure: isSecure, [.send("0123456789"), .wait(for: try TestSignal())])
        socket.keepsConnectionOnReadTimeout = true
        let late = Operations().read(.length(100), on: socket, timeout: 0.05)
        #expect(try await late.outcome() == .failed(.readTimeout))
        #expect(try await Operations().read(.length(10), on: socket).value() == Data("0123456789"))
        #expect(late.outcomes == [.failed(.readTimeout)])
        socket.disconnect()
    }

    @Test func theNextReadHasTheWholeOfItsTime() async throws {
        let (socket, _, _) = try await start(isSecure: false, [.wait(for: try TestSignal())])
        socket.keepsConnectionOnReadTimeout = true
        let operations = Operations()
        let first = operations.read(.length(1), on: socket, timeout: 3600)
        let second = operations.read(.length(1), on: socket, timeout: 0.05)
        socket.cancel(first)
        #expect(try await first.outcome() == .cancelled)
        #expect(try await second.outcome() == .failed(.readTimeout))
        #expect(socket.isConnected)
        socket.disconnect()
    }

    @Test(arguments: [false, true])
    func aReadThatHasEndedCannotBeCancelled(isSecure: Bool) async throws {
        let (socket, recorder, _) = try await start(isSecure: isSecure, [.send("hello"), .expect("bye")])
        let operations = Operations()
        let read = operations.read(.length(5), on: socket)
        #expect(try await read.outcome() == .served)
        socket.cancel(read)
        let write = operations.write(Data("bye"), on: socket)
        #expect(try await write.outcome() == .served)
        socket.cancel(write)
        await socket.settle()
        #expect(socket.isConnected)
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        socket.cancel(read)
        await socket.settle()
        try await operations.expect(.served)
    }

    // MARK: - Writes

    /// Returns two of our sockets. The server does not read yet.
    private func link(isSecure: Bool) async throws -> Link {
        let link = try await Link.make()
        if isSecure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        return link
    }

    @Test(arguments: [false, true])
    func aWriteThatHasNotBegunNeverArrives(isSecure: Bool) async throws {
        let link = try await link(isSecure: isSecure)
        let operations = Operations()
        let first = operations.write(Self.more, on: link.client)
        let second = operations.write(Data("dropped"), on: link.client)
        let third = operations.write(Data("kept"), on: link.client)
        link.client.cancel(second)
        #expect(try await second.outcome() == .cancelled)
        link.client.disconnectAfterWriting()
        link.server.readDataToEnd(withTimeout: .patient, maxLength: .max)
        #expect(try await link.atServer.readData() == Self.more + Data("kept"))
        #expect(try await link.atClient.disconnected() == nil)
        #expect(first.outcomes == [.served] && second.outcomes == [.cancelled] && third.outcomes == [.served])
    }

    @Test(arguments: [false, true])
    func aWriteUnderWayGoesOn(isSecure: Bool) async throws {
        let link = try await link(isSecure: isSecure)
        let operations = Operations()
        let first = operations.write(Self.more, on: link.client)
        let second = operations.write(Data("behind"), on: link.client)
        try await eventually("some is sent") { (link.client.writeProgress?.bytesDone ?? 0) > 0 }
        link.client.cancel(first)
        #expect(try await first.outcome() == .cancelled)
        // It has already completed, so it cannot be cancelled again.
        link.client.cancel(first)
        link.client.disconnectAfterWriting()
        link.server.readDataToEnd(withTimeout: .patient, maxLength: .max)
        #expect(try await link.atServer.readData() == Self.more + Data("behind"))
        #expect(try await link.atClient.disconnected() == nil)
        #expect(first.outcomes == [.cancelled] && second.outcomes == [.served])
    }

    @Test func aCancellationDuringTheHandshakeMayBringLowWaterToo() async throws {
        let isUnderWay = try TestSignal()
        let peer = try ScriptedPeer.listening([.expectClientHello, .fire(isUnderWay), .wait(for: try TestSignal())])
        let marks = try WaterMarks()
        let socket = AsyncSocket(inlineDelegate: marks)
        socket.writeHighWaterMark = 1000
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client())
        try await isUnderWay.wait()
        let write = Operations().write(Data(count: 4096), on: socket)
        await socket.settle()
        socket.cancel(write)
        #expect(try await write.outcome() == .cancelled)
        socket.disconnect()
        try await marks.end.wait()
        #expect(marks.counts == [4096, 0])
        peer.stop()
    }

    /// Records the high-water and low-water callbacks.
    private final class WaterMarks: AsyncSocketDelegate, Sendable {
        private let state = Locked<[Int]>([])
        let end: TestSignal

        init() throws {
            end = try TestSignal()
        }

        var counts: [Int] { state.withLock { $0 } }

        func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int) {
            state.withLock { $0.append(byteCount) }
        }
        func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int) {
            state.withLock { $0.append(byteCount) }
        }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) { end.fire() }
    }

    // MARK: - startTLS

    @Test func whatIsBehindTheMarkerIsCancelledLikeOthers() async throws {
        let settings = try TestCertificates.server()
        let maySend = try TestSignal()
        let (socket, _, peer) = try await start(
            isSecure: false,
            [.wait(for: maySend), .send("go"), .startTLS(settings), .expect("kept"), .send("hello"), .expectEnd])
        let operations = Operations()
        let before = operations.read(.length(2), on: socket)
        let upgrade = operations.startTLS(try TestCertificates.client(), on: socket)
        let cancelled = [operations.read(.length(4), on: socket), operations.read(.length(4), on: socket)]
        let hello = operations.read(.length(5), on: socket)
        let dropped = operations.write(Data("dropped"), on: socket)
        operations.write(Data("kept"), on: socket)
        for read in cancelled { socket.cancel(read) }
        socket.cancel(dropped)
        for read in cancelled { #expect(try await read.outcome() == .cancelled) }
        #expect(try await dropped.outcome() == .cancelled)
        maySend.fire()
        #expect(try await before.value() == Data("go"))
        #expect(try await upgrade.outcome() == .served)
        #expect(try await hello.value() == Data("hello"))
        socket.disconnectAfterReadingAndWriting()
        _ = try await peer.finish()
        try await operations.areAnswered()
    }

    /// The read before the marker is cancelled. Nothing else delays the handshake.
    @Test func theHandshakeBeginsWhenTheReadBeforeItIsCancelled() async throws {
        let settings = try TestCertificates.server()
        let (socket, _, _) = try await start(isSecure: false, [.startTLS(settings), .send("hello")])
        let operations = Operations()
        let before = operations.read(.length(2), on: socket)
        let upgrade = operations.startTLS(try TestCertificates.client(), on: socket)
        let hello = operations.read(.length(5), on: socket)
        socket.cancel(before)
        #expect(try await upgrade.outcome() == .served)
        #expect(try await hello.value() == Data("hello"))
        #expect(before.outcomes == [.cancelled])
    }

    @Test func whoCancelsStartTLSInTheQueueEndsTheConnection() async throws {
        let (socket, recorder, peer) = try await start(isSecure: false, [.wait(for: try TestSignal())])
        let operations = Operations()
        operations.read(.length(2), on: socket)
        let upgrade = CountingWaiter<HandshakeNews>()
        socket.startTLS(try TestCertificates.client(), for: upgrade)
        operations.read(.anyBytes, on: socket)
        operations.write(Data("secret"), on: socket)
        socket.cancel(upgrade)
        #expect(try await recorder.disconnected() == nil)
        await socket.settle()
        try await operations.expect(.failed(.closed))
        #expect(upgrade.outcomes == [.cancelled])
        peer.stop()
    }

    @Test func aStartTLSThatIsDoneCannotBeCancelled() async throws {
        let settings = try TestCertificates.server()
        let (socket, _, _) = try await start(isSecure: false, [.startTLS(settings), .send("hello")])
        let operations = Operations()
        let upgrade = operations.startTLS(try TestCertificates.client(), on: socket)
        #expect(try await upgrade.outcome() == .served)
        socket.cancel(upgrade)
        #expect(try await operations.read(.length(5), on: socket).value() == Data("hello"))
        try await operations.expect(.served)
        #expect(socket.isSecure)
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import Logging
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// The backlog of a slow delegate, a delegate method with CocoaAsyncSocket's spelling, and logging.
@Suite(.timeLimit(.patient)) struct SlowDelegateTests {
    /// The peer sends byte by byte while the delegate is busy. The backlog does not grow with the number of
    /// bytes.
    @Test func progressThatWaitsIsMerged() async throws {
        let queue = DispatchQueue(label: "delegate")
        let sent = [UInt8](repeating: 7, count: 5_000)
        let peer = try ScriptedPeer.listening([.expect("go"), .send(sent, inPiecesOf: 1), .wait(for: TestSignal())])
        let recorder = Recorder(recordsProgress: true)
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await recorder.connected()
        queue.suspend()
        socket.write(Data("go"), tag: 1)
        socket.readData(toLength: 6_000, tag: 2)
        try await eventually("all of it has arrived") { socket.readProgress?.bytesDone == sent.count }
        queue.resume()
        var told: [Told] = []
        for _ in 0..<2 { told.append(await recorder.next()) }
        // One of the two bytes may have been sent separately.
        if case .wrotePartial = told[0] { told.append(await recorder.next()) }
        guard case .wrote(tag: 1) = told[told.count - 2], case .readPartial(sent.count, tag: 2) = told[told.count - 1] else {
            throw Unexpected(description: "\(told)")
        }
        #expect(recorder.unread.isEmpty)
        peer.stop()
    }

    /// The progress of one operation is not added to the next one's, even if both have the same tag.
    @Test func progressOfDifferentReadsIsToldApart() async throws {
        let queue = DispatchQueue(label: "delegate")
        let next = try TestSignal()
        let peer = try ScriptedPeer.listening([
            .send("abc"), .wait(for: next), .send("d"), .wait(for: TestSignal()),
        ])
        let recorder = Recorder(recordsProgress: true)
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await recorder.connected()
        queue.suspend()
        socket.readData(toLength: 4, tag: 0)
        socket.readData(toLength: 4, tag: 0)
        try await eventually("a part has arrived") { socket.readProgress?.bytesDone == 3 }
        next.fire()
        try await eventually("the next is current") { socket.readProgress?.bytesDone == 0 }
        queue.resume()
        try await recorder.readProgress(to: 3, tag: 0)
        #expect(try await recorder.readText() == "abcd")
        #expect(recorder.unread.isEmpty)
        peer.stop()
    }

    @Test func lowWaterFollowsHighWater() async throws {
        final class Noter: AsyncSocketDelegate, Sendable {
            let marks = AsyncStream<(isHigh: Bool, count: Int)>.makeStream()
            func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int) {
                marks.continuation.yield((true, byteCount))
            }
            func socket(_ socket: AsyncSocket, writeQueueReachedLowWater byteCount: Int) {
                marks.continuation.yield((false, byteCount))
            }
        }
        let noter = Noter()
        let link = try await Link.make()
        link.client.setInlineDelegate(noter)
        link.client.writeHighWaterMark = 1 << 20
        link.client.write(Data(count: 32 << 20), tag: 0)
        var marks = noter.marks.stream.makeAsyncIterator()
        let high = try #require(await marks.next())
        #expect(high.isHigh && high.count >= 1 << 20)
        link.server.readData(toLength: 32 << 20, withTimeout: .patient)
        let low = try #require(await marks.next())
        #expect(!low.isHigh && low.count <= 1 << 19)
        #expect(try await link.atServer.readData().count == 32 << 20)
    }

    /// A delegate written for CocoaAsyncSocket uses that library's spelling of the disconnect method.
    @Test func theCocoaAsyncSocketSpellingOfDidDisconnectIsCalled() async throws {
        final class Ported: AsyncSocketDelegate, Sendable {
            let ends = AsyncStream<(any Error)?>.makeStream()
            func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?) { ends.continuation.yield(error) }
        }
        let refusing = try RawSocket.refusing()
        let port = try refusing.localPort
        let ported = Ported()
        let socket = AsyncSocket(inlineDelegate: ported)
        try socket.connect(toHost: "127.0.0.1", onPort: port)
        var ends = ported.ends.stream.makeAsyncIterator()
        let error = try #require(await ends.next())
        #expect((error as? AsyncSocketError)?.code == .connectFailed)
        #expect(error?.localizedDescription.contains("127.0.0.1:\(port): connection refused") == true)
    }

    @Test func anAddressInUseIsNamed() async throws {
        let recorder = Recorder()
        let (first, second) = (AsyncSocket(inlineDelegate: recorder), AsyncSocket(inlineDelegate: recorder))
        try first.accept(onInterface: "127.0.0.1", port: 0)
        let error = #expect(throws: AsyncSocketError.self) { try second.accept(onInterface: "127.0.0.1", port: first.localPort) }
        #expect(error?.message == "127.0.0.1:\(first.localPort): address already in use")
    }

    // MARK: - The log

    private struct Handler: LogHandler {
        let lines: Locked<[(message: String, metadata: Logger.Metadata)]>
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.debug

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            lines.withLock { $0.append(("\(event.message)", event.metadata ?? [:])) }
        }
    }

    @Test func whatIsDroppedIsLogged() {
        let lines = Locked<[(message: String, metadata: Logger.Metadata)]>([])
        let socket = AsyncSocket()
        socket.logger = Logger(label: "mine") { _ in Handler(lines: lines) }
        socket.readData()
        socket.write(Data("x"), withTimeout: -1)
        #expect(lines.withLock { $0.map(\.message) }.allSatisfy { $0.contains("dropped") })
        #expect(lines.withLock { $0.count } == 2)
    }

    @Test func whatHappensToAConnectionIsLoggedWithoutItsBytes() async throws {
        let lines = Locked<[(message: String, metadata: Logger.Metadata)]>([])
        let settings = try TestCertificates.server()
        let peer = try ScriptedPeer.listening([.startTLS(settings), .expect("a secret"), .send("another"), .close])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.logger = Logger(label: "mine") { _ in Handler(lines: lines) }
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try socket.beginTLS(settings: TestCertificates.client())
        socket.write(Data("a secret"), tag: 0)
        socket.readData(toLength: 7, withTimeout: .patient)
        socket.readData(withTimeout: .patient)
        while true { if case .disconnected = await recorder.next() { break } }
        let logged = lines.withLock { $0 }
        #expect(logged.map(\.message) == ["connecting", "connected", "TLS handshake started", "TLS established", "closed"])
        #expect(Set(logged.map { $0.metadata["connection"]?.description }).count == 1)
        #expect(logged.allSatisfy { $0.metadata["role"] == "client" })
        #expect(logged.dropFirst().allSatisfy { $0.metadata["peer"] == "127.0.0.1:\(peer.port)" })
        #expect(logged.last?.metadata["error"] != nil)
        #expect(!"\(logged)".contains("secret") && !"\(logged)".contains("another"))
    }
}

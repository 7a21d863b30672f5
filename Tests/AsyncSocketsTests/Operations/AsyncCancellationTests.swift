import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Cancelling a task does not lose data that others could use.
@Suite(.timeLimit(.patient)) struct AsyncCancellationTests {
    /// More than the kernel buffers of both sides hold.
    private static let more = pattern(16 << 20)

    /// The kinds of reads.
    enum Kind: CaseIterable, Sendable {
        case anyBytes, exactly, until, line, toEnd

        /// Performs a read that does not complete with eight bytes, except `anyBytes`, which completes with
        /// any data.
        func read(_ socket: AsyncSocket, timeout: Duration? = nil) async throws {
            switch self {
            case .anyBytes: _ = try await socket.read(timeout: timeout)
            case .exactly: _ = try await socket.read(exactly: 9, timeout: timeout)
            case .until: _ = try await socket.read(until: Data("8"), timeout: timeout)
            case .line: _ = try await socket.readLine(timeout: timeout)
            case .toEnd: _ = try await socket.readToEnd(timeout: timeout)
            }
        }
    }

    // MARK: - Reads

    @Test(arguments: Kind.allCases, [false, true])
    func whoIsCancelledBeforehandReadsNothing(_ kind: Kind, isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("01234567")], isSecure: isSecure)
        let task = Task.immediate {
            withUnsafeCurrentTask { $0?.cancel() }
            try await kind.read(socket)
        }
        #expect(await task.outcome == .cancelled)
        #expect(try await socket.read(exactly: 8) == Data("01234567"))
    }

    @Test(arguments: Kind.allCases, [false, true])
    func aReadThatIsCancelledWhileItWaitsLeavesAll(_ kind: Kind, isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _) = try await connectedSocket([.wait(for: maySend), .send("01234567")], isSecure: isSecure)
        let tasks = (0..<3).map { _ in Task.immediate { try await kind.read(socket) } }
        let behind = Task.immediate { try await socket.read(exactly: 8) }
        for task in tasks.reversed() { task.cancel() }
        for task in tasks { #expect(await task.outcome == .cancelled) }
        maySend.fire()
        #expect(try await behind.value == Data("01234567"))
    }

    @Test(arguments: Kind.allCases.filter { $0 != .anyBytes }, [false, true])
    func whatACancelledReadHasGotIsForTheNext(_ kind: Kind, isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _) = try await connectedSocket(
            [.send("01234567"), .wait(for: maySend), .send("8\n")], isSecure: isSecure)
        for _ in 0..<2 {
            let task = Task.immediate { try await kind.read(socket) }
            try await eventually("eight bytes are there") { socket.readProgress?.bytesDone == 8 }
            task.cancel()
            #expect(await task.outcome == .cancelled)
        }
        let behind = Task.immediate { try await socket.readLine() }
        maySend.fire()
        #expect(try await behind.value == "012345678")
    }

    @Test(arguments: Kind.allCases.filter { $0 != .anyBytes }, [false, true])
    func whatALateReadHasGotIsForTheNext(_ kind: Kind, isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("01234567"), .wait(for: try TestSignal())], isSecure: isSecure)
        let first = Task.immediate { try await kind.read(socket, timeout: .milliseconds(20)) }
        let second = Task.immediate { try await kind.read(socket, timeout: .milliseconds(10)) }
        #expect(await second.outcome == .failed(.readTimeout))
        #expect(await first.outcome == .failed(.readTimeout))
        #expect(await outcome { try await kind.read(socket, timeout: .zero) } == .failed(.readTimeout))
        #expect(await outcome { try await kind.read(socket, timeout: .seconds(-1)) } == .failed(.readTimeout))
        #expect(try await socket.read(exactly: 8) == Data("01234567"))
        #expect(socket.isConnected)
    }

    /// The data of a partial read of megabytes is put back before the data received after it.
    @Test(arguments: [false, true])
    func muchThatWasCollectedIsForTheNextToo(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, server) = (pair.client, pair.server)
        let write = Task { try await server.write(Self.more) }
        for count in [1, 5, 10] {
            let task = Task.immediate { try await client.read(exactly: Self.more.count + 1) }
            try await eventually("megabytes are there") { (client.readProgress?.bytesDone ?? 0) >= count << 20 }
            task.cancel()
            #expect(await task.outcome == .cancelled)
        }
        #expect(try await client.read(exactly: Self.more.count) == Self.more)
        try await write.value
    }

    @Test(arguments: [false, true])
    func aGroupThatFailsCancelsItsReads(isSecure: Bool) async throws {
        struct Enough: Error {}
        let (socket, _) = try await connectedSocket([.send("01234567"), .wait(for: try TestSignal())], isSecure: isSecure)
        await #expect(throws: Enough.self) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<3 { group.addTask { _ = try await socket.read(exactly: 9) } }
                try await eventually("eight bytes are there") { socket.readProgress?.bytesDone == 8 }
                throw Enough()
            }
        }
        #expect(try await socket.read() == Data("01234567"))
    }

    /// Two reads wait for one byte: one read gets it. The other is cancelled while the next byte arrives, and
    /// either returns that byte or leaves it for the read that follows.
    @Test(arguments: [false, true])
    func aRaceOfTwoReadsHasOneWinner(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        for number: UInt8 in 0..<20 {
            let (first, next) = (Data([2 * number]), Data([2 * number + 1]))
            try await pair.server.write(first)
            let (winner, loser) = try await withThrowingTaskGroup(of: Data.self) { group in
                for _ in 0..<2 { group.addTask { try await client.read(exactly: 1) } }
                let winner = await group.nextResult()
                async let arrival: Void = pair.server.write(next)
                group.cancelAll()
                let loser = await group.nextResult()
                try await arrival
                return (winner, loser)
            }
            #expect(try winner?.get() == first)
            switch loser {
            case .success(let bytes): #expect(bytes == next)
            case .failure(let error):
                #expect(error is CancellationError)
                #expect(try await client.read(exactly: 1) == next)
            case nil: Issue.record("the second read has no result")
            }
        }
    }

    // MARK: - Writes

    @Test(arguments: [false, true])
    func aCancelledWriteThatHasNotBegunIsGone(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let first = Task.immediate { try await client.write(Self.more) }
        let gone = (0..<3).map { _ in Task.immediate { try await client.write("gone") } }
        let kept = Task.immediate { try await client.write("kept") }
        let never = Task.immediate {
            withUnsafeCurrentTask { $0?.cancel() }
            try await client.write("never")
        }
        for task in gone { task.cancel() }
        for task in gone + [never] { #expect(await task.outcome == .cancelled) }
        let closing = Task.immediate { try await client.close() }
        let isWhole = try await pair.server.readToEnd(maxLength: .max) == Self.more + Data("kept")
        #expect(isWhole)
        #expect(await first.outcome == .served)
        #expect(await kept.outcome == .served)
        try await closing.value
    }

    @Test(arguments: [false, true])
    func aCancelledWriteThatHasBegunGoesOn(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let first = Task.immediate { try await client.write(Self.more) }
        let beginning = try await pair.server.read(exactly: 1)
        first.cancel()
        #expect(await first.outcome == .cancelled)
        let closing = Task.immediate { try await client.close() }
        let isWhole = try await beginning + pair.server.readToEnd(maxLength: .max) == Self.more
        #expect(isWhole)
        try await closing.value
    }

    /// A socket pair's kernel buffer stays full until the peer reads. It contains the start of the first
    /// write.
    @Test(.unmodifiedKernel) func aCancelledWriteThatTheKernelHasBegunGoesOn() async throws {
        let (peer, other) = try RawSocket.pair()
        let socket = try AsyncSocket(adopting: other.duplicate())
        for text in ["first", "second"] {
            let write = Task.immediate { try await socket.write(text == "first" ? Self.more : Data(text)) }
            write.cancel()
            #expect(await write.outcome == .cancelled)
        }
        let kept = Task.immediate { try await socket.write("kept") }
        let closing = Task.immediate { try await socket.close() }
        var received = Data()
        while case let piece = try peer.receive(), !piece.isEmpty { received += piece }
        // The description of a difference in megabytes of data would take minutes.
        let isWhole = received == Self.more + Data("kept")
        #expect(isWhole)
        #expect(await kept.outcome == .served)
        try await closing.value
    }

    @Test(arguments: [false, true])
    func aCancelledFileIsGoneOrGoesOn(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let folder = try TemporaryFolder()
        try Self.more.write(to: folder.url("file"))
        let path = folder.path("file")
        let tasks = (0..<2).map { _ in Task.immediate { try await client.write(contentsOfFile: path) } }
        try await eventually("some of the file is sent") { (client.writeProgress?.bytesDone ?? 0) > 0 }
        for task in tasks {
            task.cancel()
            #expect(await task.outcome == .cancelled)
        }
        let closing = Task.immediate { try await client.close() }
        #expect(try await pair.server.readToEnd(maxLength: .max) == Self.more)
        try await closing.value
    }

    // MARK: - Connecting

    @Test func aCancelledConnectFreesEverything() async throws {
        let full = try FullBacklog()
        let socket = AsyncSocket()
        let connect = Task.immediate { try await socket.connect(to: full.address) }
        weak let connection = socket.connection
        #expect(connection != nil)
        connect.cancel()
        #expect(await connect.outcome == .cancelled)
        #expect(socket.isDisconnected)
        let peer = try ScriptedPeer.listening([.send("hello")])
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        #expect(try await socket.read(exactly: 5) == Data("hello"))
        try await eventually("the first attempt is gone") { connection == nil }
    }

    @Test func whoIsCancelledBeforehandDoesNotConnect() async throws {
        let socket = AsyncSocket()
        let listener = try RawSocket.listening()
        let port = try listener.localPort
        let connect = Task.immediate {
            withUnsafeCurrentTask { $0?.cancel() }
            try await socket.connect(to: "127.0.0.1", port: port)
        }
        #expect(await connect.outcome == .cancelled)
        #expect(socket.connection == nil)
        #expect(!listener.hasInput)
    }

    // MARK: - startTLS

    @Test func aCancelledHandshakeClosesTheConnection() async throws {
        let isUnderWay = try TestSignal()
        let (socket, peer) = try await connectedSocket([.expectClientHello, .fire(isUnderWay), .expectReset])
        let task = Task.immediate { try await socket.startTLS(settings: TestCertificates.client()) }
        let secret = Task.immediate { try await socket.write("secret") }
        try await isUnderWay.wait()
        task.cancel()
        #expect(await task.outcome == .cancelled)
        #expect(!socket.isConnected)
        #expect(await secret.outcome == .failed(.closed))
        #expect(await outcome { try await socket.write("secret") } == .failed(.closed))
        peer.stop()
    }

    @Test func whoIsCancelledBeforeStartTLSSendsNoPlaintext() async throws {
        let (socket, peer) = try await connectedSocket([.expectEnd])
        let task = Task.immediate {
            withUnsafeCurrentTask { $0?.cancel() }
            try await socket.startTLS(settings: TestCertificates.client())
        }
        #expect(await task.outcome == .cancelled)
        #expect(await outcome { try await socket.write("secret") } == .failed(.closed))
        _ = try await peer.finish()
    }

    @Test func startTLSThatIsCancelledInTheQueueSendsNothing() async throws {
        let mayRead = try TestSignal()
        let (socket, peer) = try await connectedSocket([.wait(for: mayRead)])
        let plaintext = Data(count: 16 << 20)
        let write = Task.immediate { try await socket.write(plaintext) }
        try await eventually("the write waits") { socket.writeProgress != nil }
        let task = Task.immediate { try await socket.startTLS(settings: TestCertificates.client()) }
        let secret = Task.immediate { try await socket.write("secret") }
        task.cancel()
        #expect(await task.outcome == .cancelled)
        #expect(await write.outcome == .failed(.closed))
        #expect(await secret.outcome == .failed(.closed))
        mayRead.fire()
        _ = try await peer.finish()
    }
}

import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// However a connection ends, every waiting task resumes exactly once, and nothing is leaked.
@Suite(.timeLimit(.patient)) struct AsyncEndTests {
    /// More than the kernel buffers of both sides hold.
    private static let more = pattern(16 << 20)

    /// Ways to end a connection immediately for all waiting tasks.
    enum Way: CaseIterable, Sendable {
        case reset, disconnect, close, cancelledClose, lateClose, tooLong, writeQueueFull

        var steps: [ScriptedPeer.Step] {
            switch self {
            case .reset: [.reset]
            case .disconnect, .close, .cancelledClose, .lateClose, .tooLong, .writeQueueFull: []
            }
        }

        var code: AsyncSocketError.Code {
            switch self {
            case .reset: .connectionReset
            case .disconnect, .close, .cancelledClose: .closed
            case .lateClose: .writeTimeout
            case .tooLong: .readMaxedOut
            case .writeQueueFull: .writeQueueFull
            }
        }
    }

    /// Resources that must be released with a socket.
    private struct Traces {
        private weak let socket: AsyncSocket?
        private weak let connection: StreamConnection?
        private weak let descriptor: SocketDescriptor?

        init(of socket: AsyncSocket) throws {
            self.socket = socket
            connection = socket.connection
            descriptor = socket.connection?.record.withLock { $0.live.descriptor }
            try #require(connection != nil && descriptor != nil)
        }

        func areGone() async throws {
            try await eventually("the socket is released") { socket == nil }
            try await eventually("its connection is released") { connection == nil }
            try await eventually("its descriptor is closed") { descriptor == nil }
        }
    }

    private func tasks(on socket: AsyncSocket, _ way: Way) -> (reads: [Task<Void, any Error>], writes: [Task<Void, any Error>]) {
        let first =
            way == .tooLong
            ? Task.immediate { _ = try await socket.read(until: AsyncSocket.crlf, maxLength: 11) }
            : Task.immediate { _ = try await socket.read(exactly: 100) }
        let reads = [
            first,
            Task.immediate { _ = try await socket.readLine() },
            Task.immediate { _ = try await socket.readToEnd() },
            Task.immediate { _ = try await socket.read() },
            Task.immediate { for try await _ in socket.chunks {} },
            Task.immediate { for try await _ in socket.lines {} },
        ]
        let writes = [Self.more, Data("waits"), Data("waits too")].map { data in
            Task.immediate { try await socket.write(data) }
        }
        return (reads, writes)
    }

    @Test(arguments: Way.allCases, [false, true])
    func everyTaskThatWaitsGoesOn(_ way: Way, isSecure: Bool) async throws {
        let mayEnd = try TestSignal()
        let steps: [ScriptedPeer.Step] = [.send("0123456789"), .wait(for: mayEnd)]
        var (socket, peer): (AsyncSocket?, _) = try await connectedSocket(
            steps + (way == .tooLong ? [.send("a")] : way.steps), isSecure: isSecure)
        let traces = try Traces(of: try #require(socket))
        let (reads, writes) = tasks(on: try #require(socket), way)
        try await eventually("ten bytes are there") { socket?.readProgress?.bytesDone == 10 }
        try await end(try #require(socket), way, mayEnd)
        for task in reads {
            // A close fails the operations for which it does not wait.
            #expect(await task.outcome == .failed(way == .lateClose ? .writeTimeout : way.code))
        }
        for task in writes { #expect(await task.outcome == (way == .close ? .served : .failed(way.code))) }
        #expect(socket?.isConnected == false)
        socket = nil
        try await traces.areGone()
        peer.stop()
    }

    private func end(_ socket: AsyncSocket, _ way: Way, _ mayEnd: TestSignal) async throws {
        switch way {
        case .reset, .tooLong: mayEnd.fire()
        case .disconnect: socket.disconnect()
        case .close:
            mayEnd.fire()
            try await socket.close()
        case .lateClose: #expect(await outcome { try await socket.close(timeout: .milliseconds(20)) } == .failed(.writeTimeout))
        case .cancelledClose:
            let closing = Task.immediate { try await socket.close() }
            closing.cancel()
            #expect(await closing.outcome == .cancelled)
        case .writeQueueFull:
            // A delegate's write is limited. Writes of tasks wait instead.
            socket.maximumPendingWriteBytes = 10
            socket.write(Data("one too many"), withTimeout: -1)
        }
    }

    /// Only the read side ends. Writes continue.
    @Test(arguments: [(false, true), (true, true), (true, false)])
    func anEndOfThePeersSideAnswersTheReadsAlone(isSecure: Bool, isOrderly: Bool) async throws {
        let mayEnd = try TestSignal()
        let end: [ScriptedPeer.Step] = isOrderly ? .orderlyEnd(isSecure: isSecure) : [.finish]
        let steps: [ScriptedPeer.Step] = [.send("0123456789"), .wait(for: mayEnd)] + end
        var (socket, peer): (AsyncSocket?, _) = try await connectedSocket(steps, isSecure: isSecure)
        let traces = try Traces(of: try #require(socket))
        let (reads, writes) = tasks(on: try #require(socket), .disconnect)
        try await eventually("ten bytes are there") { socket?.readProgress?.bytesDone == 10 }
        mayEnd.fire()
        #expect(await reads[0].outcome == .failed(isOrderly ? .closedByPeer : .truncated))
        for (number, task) in reads.enumerated().dropFirst() {
            // The bytes left by the first read are still available to a read of any bytes.
            #expect(await task.outcome == (isOrderly || number == 3 ? .served : .failed(.truncated)), "\(number)")
        }
        for task in writes { #expect(await task.outcome == .served) }
        try await socket?.close()
        socket = nil
        try await traces.areGone()
        _ = try await peer.finish()
    }

    /// The peer has disconnected while we write.
    @Test(arguments: [false, true])
    func aWriteThatFailsEndsTheConnectionForAll(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.close], isSecure: isSecure)
        let data = pattern(100_000)
        var last = Outcome.served
        while last == .served { last = await outcome { try await socket.write(data) } }
        #expect(
            last == .failed(isSecure ? .truncated : .connectionReset) || last == .failed(.connectionReset)
                || last == .failed(.system))
        #expect(await outcome { try await socket.write("more") } == last)
        #expect(!socket.isConnected)
    }

    // MARK: - References

    @Test(arguments: [false, true])
    func aSocketThatNoOneHoldsCloses(isSecure: Bool) async throws {
        var (socket, peer): (AsyncSocket?, _) = try await connectedSocket([.expect("hello"), .expectEnd], isSecure: isSecure)
        let traces = try Traces(of: try #require(socket))
        try await socket?.write("hello")
        socket = nil
        _ = try await peer.finish()
        try await traces.areGone()
    }

    @Test(arguments: [false, true])
    func aTaskThatWaitsKeepsItsSocketAlive(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        var (socket, peer): (AsyncSocket?, _) = try await connectedSocket(
            [.wait(for: maySend), .send("hello"), .expectEnd], isSecure: isSecure)
        let traces = try Traces(of: try #require(socket))
        let read = try {
            let socket = try #require(socket)
            return Task.immediate { try await socket.read(exactly: 5) }
        }()
        socket = nil
        maySend.fire()
        #expect(try await read.value == Data("hello"))
        _ = try await peer.finish()
        try await traces.areGone()
    }

    @Test func aTaskThatConnectsKeepsItsSocketAlive() async throws {
        let peer = try ScriptedPeer.listening([.send("hello"), .expectEnd])
        let answer = await Task.immediate {
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: peer.port)
            return try await socket.readToEnd(timeout: .milliseconds(20))
        }.outcome
        // The peer waits for our side to close, which happens with the last reference.
        #expect(answer == .failed(.readTimeout))
        _ = try await peer.finish()
    }
}

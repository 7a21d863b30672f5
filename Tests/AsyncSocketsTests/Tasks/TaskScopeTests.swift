import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The task of a connection: its reads share a waiter and one cancellation handler.
@Suite(.timeLimit(.patient)) struct TaskScopeTests {
    /// Calls `body` in the task of a connection to a scripted peer.
    private func scope(
        _ steps: [ScriptedPeer.Step], isSecure: Bool, _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Void
    ) async throws {
        let start: [ScriptedPeer.Step] = isSecure ? [.startTLS(try TestCertificates.server())] : []
        let peer = try ScriptedPeer.listening(start + steps)
        let settings = isSecure ? try TestCertificates.client() : nil
        try await untilStopped(peer) {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: peer.port, tls: settings, body)
        }
        peer.stop()
    }

    /// A child task is a separate task. Its read waits together with the scope's.
    @Test(arguments: [false, true]) func childTasksReadBesideTheirScope(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        try await scope([.wait(for: maySend), .send("abcdefghi"), .expectEnd], isSecure: isSecure) { socket in
            let children = (0..<2).map { _ in Task.immediate { try await socket.read(exactly: 3, timeout: .patient) } }
            try await socket.readWaits()
            maySend.fire()
            #expect(try await socket.read(exactly: 3, timeout: .patient) == Data("ghi"))
            #expect(try await children[0].value == Data("abc"))
            #expect(try await children[1].value == Data("def"))
        }
    }

    /// Cancelling one child does not cancel the reads of the scope and of another child.
    @Test(arguments: [false, true]) func aCancelledChildIsAlone(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        try await scope([.wait(for: maySend), .send("abcdef"), .expectEnd], isSecure: isSecure) { socket in
            let children = (0..<2).map { _ in Task.immediate { try await socket.read(exactly: 3, timeout: .patient) } }
            let helper = Task {
                children[0].cancel()
                #expect(await children[0].outcome == .cancelled)
                maySend.fire()
            }
            let mine = try await socket.read(exactly: 3, timeout: .patient)
            let other = try await children[1].value
            #expect(mine == Data("def") && other == Data("abc"))
            await helper.value
        }
    }

    /// The first read is cancelled while it waits. Later reads throw immediately, even if data is available.
    @Test(arguments: [false, true]) func afterACancellationEveryReadThrows(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let reader = Locked<AsyncSocket?>(nil)
        let outcomes = Findings<Outcome>()
        let task = Task {
            try await scope([.wait(for: maySend), .send("abc"), .expectEnd], isSecure: isSecure) { socket in
                reader.withLock { $0 = socket }
                outcomes.add(await outcome { try await socket.read(timeout: .patient) })
                guard outcomes.all == [.cancelled] else { return }
                maySend.fire()
                // In a task that is not cancelled.
                try await Task.detached { try await socket.hasBuffered(3) }.value
                for _ in 0..<3 { outcomes.add(await outcome { try await socket.read(timeout: .milliseconds(100)) }) }
                outcomes.add(await outcome { try await socket.readLine(timeout: .milliseconds(100)) })
                outcomes.add(await outcome { try await socket.withNextBytes(timeout: .milliseconds(100)) { _ in } })
            }
        }
        try await eventually("the read waits") { reader.withLock { $0 }?.readProgress != nil }
        task.cancel()
        _ = await task.result
        #expect(outcomes.all == Array(repeating: .cancelled, count: 6))
    }

    /// Cancels its own task when it is called, so that the cancellation happens while a read is being
    /// requested.
    private struct Canceller: Framing {
        let maximumFrameLength = 10
        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Int> {
            withUnsafeCurrentTask { $0?.cancel() }
            return .incomplete(minimumLength: bytes.byteCount + 1)
        }
        func encode(_ frame: Int, into bytes: inout Data) throws(AsyncSocketError) {}
    }

    @Test(arguments: [false, true]) func aCancellationWithinTheAskingCounts(isSecure: Bool) async throws {
        let outcomes = Findings<Outcome>()
        let task = Task {
            try await scope([.send("abc"), .wait(for: try TestSignal())], isSecure: isSecure) { socket in
                try await socket.hasBuffered(3)
                outcomes.add(await outcome { try await socket.readFrame(Canceller(), timeout: .patient) })
                outcomes.add(await outcome { try await socket.read(timeout: .patient) })
            }
        }
        _ = await task.result
        #expect(outcomes.all == [.cancelled, .cancelled])
    }

    /// A different limit for each read, set in every possible way.
    @Test func eachReadHasTheLimitAroundIt() async throws {
        var outcomes: [Outcome] = []
        try await scope([.wait(for: try TestSignal())], isSecure: false) { socket in
            outcomes.append(await outcome { try await socket.read(timeout: .milliseconds(5)) })
            let late = await outcome {
                try await withDeadline(.milliseconds(5)) { try await socket.read(timeout: .patient) }
            }
            outcomes += [late, await outcome { try await socket.readLine(timeout: .milliseconds(5)) }]
            #expect(socket.isConnected)
        }
        #expect(outcomes == [.failed(.readTimeout), .failed(.deadlineExceeded), .failed(.readTimeout)])
    }
}

import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Executors of tasks: sockets work on every executor, and each task resumes on its own.
@Suite(.timeLimit(.patient)) struct AsyncExecutorTests {
    /// Performs every operation once. `check` is called after each, and the trust closure calls `decide`.
    private nonisolated(nonsending) func useEverything(
        deciding decide: @escaping @Sendable () -> Void = {}, _ check: @escaping (AsyncSocket) -> Void
    ) async throws {
        let settings = try TestCertificates.server()
        let peer = try ScriptedPeer.listening([
            .expect("hello"), .startTLS(settings), .send("one\r\ntwo\r\nthree"), .expect("bye"), .sendCloseNotify, .finish,
            .expectEnd,
        ])
        let socket = AsyncSocket()
        check(socket)
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        check(socket)
        try await socket.write("hello")
        check(socket)
        try await socket.startTLS(settings: TestCertificates.client()) { _ in
            decide()
            return true
        }
        check(socket)
        _ = try await socket.readLine()
        check(socket)
        for try await line in socket.lines {
            check(socket)
            #expect(line == "two")
            break
        }
        await withDeadline(.milliseconds(10)) {
            check(socket)
            _ = await outcome { try await socket.read(exactly: 100) }
            check(socket)
        }
        #expect(try await socket.read(exactly: 5) == Data("three"))
        try await socket.write(Data("bye"))
        #expect(try await socket.readToEnd() == Data())
        check(socket)
        try await socket.close()
        check(socket)
        _ = try await peer.finish()
    }

    /// A serial executor with its own queue.
    private final class QueueExecutor: TaskExecutor {
        private let queue = DispatchQueue(label: "executor")
        private let key = DispatchSpecificKey<Bool>()

        init() { queue.setSpecific(key: key, value: true) }

        var isCurrent: Bool { DispatchQueue.getSpecific(key: key) ?? false }

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    // Not optimized, because Swift 6.3 assumes that a nonisolated(nonsending) function in the same module
    // switches to its executor itself, and omits the switch before the call.
    private actor Owner {
        @_optimize(none) func useEverything(_ tests: AsyncExecutorTests) async throws {
            try await tests.useEverything { _ in self.assertIsolated() }
        }

        @_optimize(none) func hello(_ tests: AsyncExecutorTests, from port: UInt16) async throws -> String? {
            try await tests.helloByConnection(to: port) { self.assertIsolated() }
        }
    }

    // MARK: - Tasks

    @Test func tasksOnTheMainActorStayThere() async throws {
        try await onMainActor()
    }

    @_optimize(none) @MainActor private func onMainActor() async throws {
        try await useEverything { _ in MainActor.assertIsolated() }
    }

    @Test func tasksOfAnActorStayThere() async throws {
        try await Owner().useEverything(self)
    }

    @Test func tasksOnTheGlobalExecutorAreOnNoLoop() async throws {
        try await Task.detached {
            try await useEverything { socket in #expect(socket.executor?.isCurrent == false) }
        }.value
    }

    @Test func tasksOnAnExecutorOfTheirOwnStayThere() async throws {
        let executor = QueueExecutor()
        try await Task(executorPreference: executor) {
            try await useEverything(deciding: {
                // With Swift 6.2, the task of a trust closure cannot inherit the preference.
                #if compiler(>=6.3)
                #expect(executor.isCurrent)
                #endif
            }) { _ in #expect(executor.isCurrent) }
        }.value
    }

    @Test(arguments: [false, true])
    func tasksOnTheLoopStayThere(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, server) = (pair.client, pair.server)
        let loop = try #require(client.executor)
        #expect(client.executor === loop)
        let echo = Task(executorPreference: server.executor) {
            for try await bytes in server.chunks { try await server.write(bytes) }
            try await server.close()
        }
        try await withTaskExecutorPreference(loop) {
            for round in 0..<1000 {
                try await client.write("\(round)\n")
                #expect(loop.isCurrent)
                #expect(try await client.readLine() == "\(round)")
                #expect(loop.isCurrent)
            }
            #expect(await outcome { try await client.read(timeout: .milliseconds(5)) } == .failed(.readTimeout))
            #expect(loop.isCurrent)
            let child = Task.immediate { try await client.read() }
            child.cancel()
            #expect(await child.outcome == .cancelled)
            try await client.close()
            #expect(loop.isCurrent)
        }
        try await echo.value
    }

    // MARK: - withConnection

    private func peer() throws -> ScriptedPeer {
        try ScriptedPeer.listening([.send("hello\r\n"), .expect("bye"), .expectEnd])
    }

    private nonisolated(nonsending) func talk(_ socket: AsyncSocket, _ check: () -> Bool) async throws -> String? {
        #expect(check())
        let line = try await socket.readLine()
        #expect(check())
        try await socket.write("bye")
        #expect(check())
        return line
    }

    @Test func withConnectionRunsOnTheLoop() async throws {
        let peer = try peer()
        let line = try await AsyncSocket.withConnection(to: "127.0.0.1", port: peer.port) { socket in
            try await talk(socket) { socket.executor?.isCurrent == true }
        }
        #expect(line == "hello")
        _ = try await peer.finish()
    }

    @Test func withoutAnExecutorItRunsWhereTheCallerDoes() async throws {
        let peer = try peer()
        let address = try #require(SocketEndpoint(literal: "127.0.0.1", port: peer.port))
        let line = try await AsyncSocket.withConnection(to: address, executor: nil) { socket in
            try await talk(socket) { socket.executor?.isCurrent == false }
        }
        #expect(line == "hello")
        _ = try await peer.finish()
    }

    @Test func withAnExecutorOfOnesOwnItRunsThere() async throws {
        let peer = try peer()
        let executor = QueueExecutor()
        let line = try await AsyncSocket.withConnection(to: "127.0.0.1", port: peer.port, executor: .custom(executor)) { socket in
            try await talk(socket) { executor.isCurrent }
        }
        #expect(line == "hello")
        _ = try await peer.finish()
    }

    @Test func aBodyOfTheMainActorRunsThere() async throws {
        let peer = try peer()
        #expect(try await connectOnMainActor(to: peer.port) == "hello")
        _ = try await peer.finish()
    }

    @MainActor private func connectOnMainActor(to port: UInt16) async throws -> String? {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
            MainActor.assertIsolated()
            let line = try await socket.readLine()
            MainActor.assertIsolated()
            try await socket.write("bye")
            return line
        }
    }

    /// The body accesses the actor's state without an annotation of its own.
    @Test func aBodyThatAnActorCallsRunsThere() async throws {
        let peer = try peer()
        #expect(try await Owner().hello(self, from: peer.port) == "hello")
        _ = try await peer.finish()
    }

    private nonisolated(nonsending) func helloByConnection(to port: UInt16, _ check: () -> Void) async throws -> String? {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
            check()
            let line = try await socket.readLine()
            check()
            try await socket.write("bye")
            check()
            return line
        }
    }

    /// Another task of the actor would run during a suspension.
    @Test(.unmodifiedKernel, arguments: [false, true]) @MainActor
    func whatIsThereIsReadWithoutASuspension(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("one\ntwo\nthree\nfour\nfive and six")], isSecure: isSecure)
        _ = try await socket.read(exactly: 3)
        try await socket.hasBuffered(28)
        var hasSuspended = false
        let other = Task { @MainActor in hasSuspended = true }
        #expect(try await socket.readLine() == "")
        var lines = socket.lines.makeAsyncIterator()
        #expect(try await lines.next() == "two")
        #expect(try await socket.read(until: AsyncSocket.lf) == Data("three\n".utf8))
        var chunks = socket.chunks(maxLength: 5).makeAsyncIterator()
        #expect(try await chunks.next() == Data("four\n".utf8))
        #expect(try await socket.read(exactly: 4) == Data("five".utf8))
        let rest = try await withDeadline(.patient) { try await socket.read() }
        #expect(rest == Data(" and six".utf8))
        #expect(!hasSuspended)
        await other.value
        #expect(hasSuspended)
    }

    /// The kernel has room for each write.
    @Test(.unmodifiedKernel, arguments: [false, true]) @MainActor
    func aWriteForWhichThereIsRoomDoesNotSuspend(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.expect("h")], isSecure: isSecure)
        // The loop may be inside the turn at that moment, so that the write waits, but not every time.
        for attempt in 1... {
            var hasSuspended = false
            let other = Task { @MainActor in hasSuspended = true }
            try await socket.write("h")
            let isServedAtOnce = !hasSuspended
            await other.value
            if isServedAtOnce { break }
            guard attempt < 1000 else { throw Unexpected(description: "each of \(attempt) writes has suspended") }
        }
    }

    @Test(arguments: [false, true])
    func withConnectionClosesOnEveryWayOut(isSecure: Bool) async throws {
        struct Enough: Error {}
        let settings = try TestCertificates.server()
        let start: [ScriptedPeer.Step] = isSecure ? [.startTLS(settings)] : []
        let tls = isSecure ? try TestCertificates.client() : nil
        // Returning from the body flushes all bytes and closes in order.
        let data = pattern(1 << 20)
        let reader = try ScriptedPeer.listening(start + [.expect(Array(data)), .expectEnd])
        var escaped: AsyncSocket?
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: reader.port, tls: tls) { socket in
            escaped = socket
            socket.writeHighWaterMark = 64 << 20
            try await socket.write(data)
        }
        #expect(escaped?.isConnected == false)
        _ = try await reader.finish()
        // The body throws or is cancelled.
        let peer = try ScriptedPeer.listening(start + [.expectEnd])
        await #expect(throws: Enough.self) {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: peer.port, tls: tls) { socket in
                escaped = socket
                throw Enough()
            }
        }
        #expect(escaped?.isConnected == false)
        _ = try await peer.finish()
        let isThere = try TestSignal()
        let other = try ScriptedPeer.listening(start + [.expectEnd])
        let task = Task {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: other.port, tls: tls) { socket in
                isThere.fire()
                return try await socket.read()
            }
        }
        try await isThere.wait()
        task.cancel()
        #expect(await task.outcome == .cancelled)
        _ = try await other.finish()
    }

    @Test func whatConfigureThrowsIsThrownBeforeItConnects() async throws {
        struct Wrong: Error {}
        let listener = try RawSocket.listening()
        await #expect(throws: Wrong.self) {
            try await AsyncSocket.withConnection(
                to: "127.0.0.1", port: listener.localPort, configure: { _ in throw Wrong() }
            ) { _ in Issue.record("connected") }
        }
        #expect(!listener.hasInput)
    }
}

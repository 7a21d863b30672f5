import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Listeners that serve until a signal. The default action of these signals is to be ignored.
@Suite(.serialized, .timeLimit(.patient)) struct SignalTests {
    private func listener() throws -> SocketListener {
        try SocketListener(port: 0, interface: "127.0.0.1")
    }

    private func client(of listener: SocketListener) async throws -> AsyncSocket {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.write("hello\n")
        #expect(try await client.readLine() == "hello")
        return client
    }

    private func action(of signal: CInt) -> UnsafeRawPointer? {
        var action = sigaction()
        sigaction(signal, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: UnsafeRawPointer?.self)
    }

    /// Also works a second time.
    @Test(arguments: [1, 2]) func aSignalEndsItInOrder(_ time: Int) async throws {
        let listener = try listener()
        let before = action(of: SIGURG)
        let running = Task { try await listener.run(untilSignals: [SIGURG], closeTimeout: nil) { try await $0.echo() } }
        let client = try await client(of: listener)
        #expect(action(of: SIGURG) != before)
        kill(getpid(), SIGURG)
        try await eventually("it accepts no more") { !listener.isListening }
        // The open connection continues, and its end completes the call.
        try await client.write("more\n")
        #expect(try await client.readLine() == "more")
        try await client.close()
        try await running.value
        #expect(action(of: SIGURG) == before)
    }

    @Test func aSecondSignalCuts() async throws {
        let listener = try listener()
        let running = Task {
            try await listener.run(untilSignals: [SIGURG, SIGWINCH], closeTimeout: .seconds(3_600)) { try await $0.echo() }
        }
        let client = try await client(of: listener)
        kill(getpid(), SIGURG)
        try await eventually("it accepts no more") { !listener.isListening }
        kill(getpid(), SIGWINCH)
        try await running.value
        let rest = await outcome(of: { try await client.readToEnd() })
        #expect(rest == .served || "\(rest)".contains("closedByPeer"))
    }

    /// As with streams, the first signal stops accepting, and the second closes the peers.
    @Test func signalsEndADatagramListener() async throws {
        let listener = try DatagramListener(address: .loopback())
        let before = action(of: SIGURG)
        let calls = Locked(0)
        let running = Task {
            try await listener.run(
                untilSignals: [SIGURG], closeTimeout: .seconds(3_600), onShutdown: { calls.withLock { $0 += 1 } }
            ) { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        let client = AsyncUDPSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        #expect(try await client.ask("hello") == "hello")
        kill(getpid(), SIGURG)
        try await eventually("it accepts no more") { !listener.isListening && calls.withLock { $0 } == 1 }
        #expect(try await client.ask("more") == "more")
        kill(getpid(), SIGURG)
        try await running.value
        #expect(calls.withLock { $0 } == 1)
        #expect(action(of: SIGURG) == before)
    }

    /// The body does not wait for its peer, so it would never return without the call.
    @Test func onShutdownTellsBodiesThatWaitForSomethingElse() async throws {
        let listener = try listener()
        let (words, word) = AsyncStream<String>.makeStream()
        let running = Task {
            try await listener.run(untilSignals: [SIGURG], closeTimeout: nil, onShutdown: { word.finish() }) { socket in
                _ = try await socket.readLine()
                for await word in words { try await socket.writeLine(word) }
                try await socket.writeLine("goodbye")
            }
        }
        word.yield("hello")
        let client = try await client(of: listener)
        kill(getpid(), SIGURG)
        #expect(try await client.readLine() == "goodbye")
        #expect(try await client.readLine() == nil)
        try await running.value
    }

    @Test func onShutdownIsCalledOnceAndAwaitedAndThenASignalDoesWhatItDid() async throws {
        let listener = try listener()
        let before = action(of: SIGURG)
        let calls = Locked(0)
        let (permissions, permission) = AsyncStream<Void>.makeStream()
        let running = Task {
            let onShutdown = { @Sendable in
                calls.withLock { $0 += 1 }
                for await _ in permissions {}
                calls.withLock { $0 += Task.isCancelled ? 1_000 : 100 }
            }
            try await listener.run(
                untilSignals: [SIGURG, SIGWINCH], closeTimeout: .seconds(3_600), onShutdown: onShutdown
            ) { try await $0.echo() }
        }
        _ = try await client(of: listener)
        kill(getpid(), SIGURG)
        try await eventually("it is called") { calls.withLock { $0 } == 1 }
        kill(getpid(), SIGWINCH)
        try await eventually("the connections are over") { action(of: SIGURG) == before }
        #expect(calls.withLock { $0 } == 1)
        permission.finish()
        try await running.value
        #expect(calls.withLock { $0 } == 101)
    }

    /// The listener may have ended before the signal's thread has finished.
    @Test func onShutdownIsCalledWhenNoConnectionIsOpenToo() async throws {
        let (before, calls, rounds) = (action(of: SIGURG), Locked(0), 300)
        for _ in 0..<rounds {
            let listener = try listener()
            let running = Task {
                try await listener.run(untilSignals: [SIGURG], onShutdown: { calls.withLock { $0 += 1 } }) { try await $0.echo() }
            }
            try await eventually("it waits for the signal") { action(of: SIGURG) != before }
            kill(getpid(), SIGURG)
            try await running.value
        }
        #expect(calls.withLock { $0 } == rounds)
    }

    @Test func withoutASignalOnShutdownIsNotCalled() async throws {
        let listener = try listener()
        let calls = Locked(0)
        let running = Task {
            try await listener.run(untilSignals: [SIGURG], onShutdown: { calls.withLock { $0 += 1 } }) { try await $0.echo() }
        }
        let client = try await client(of: listener)
        listener.beginClosing()
        try await client.close()
        try await running.value
        #expect(calls.withLock { $0 } == 0)
    }

    @Test func allListenersGetTheSignal() async throws {
        let listeners = [try listener(), try listener()]
        let running = listeners.map { listener in
            Task { try await listener.run(untilSignals: [SIGURG], closeTimeout: .zero) { try await $0.echo() } }
        }
        for listener in listeners { _ = try await client(of: listener) }
        kill(getpid(), SIGURG)
        for task in running { try await task.value }
    }

    @Test(arguments: [SIGKILL, SIGSTOP, SIGSEGV, 0, -1, 65, 1_000])
    func otherSignalsAreRefused(_ signal: CInt) async throws {
        let listener = try listener()
        let error = await #expect(throws: AsyncSocketError.self) {
            try await listener.run(untilSignals: [SIGURG, signal]) { _ in }
        }
        #expect(error?.code == .badParameter)
        #expect(error?.message.contains("\(signal)") == true)
        // It was not used.
        #expect(listener.isListening)
        let peers = try DatagramListener(address: .loopback())
        let other = await #expect(throws: AsyncSocketError.self) {
            try await peers.run(untilSignals: [SIGURG, signal]) { _ in }
        }
        #expect(other?.code == .badParameter && peers.isListening)
    }
}

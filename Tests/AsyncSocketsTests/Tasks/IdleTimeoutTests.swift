import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Idle connections.
@Suite(.timeLimit(.patient)) struct IdleTimeoutTests {
    enum Loop: CaseIterable {
        case chunks, lines, frames

        /// Reads until the end. Two elements arrive before the connection becomes idle.
        func run(_ socket: AsyncSocket, idleTimeout: Duration?) async throws -> Int {
            var count = 0
            switch self {
            case .chunks: for try await _ in socket.chunks(maxLength: 4, idleTimeout: idleTimeout) { count += 1 }
            case .lines: for try await _ in socket.lines(idleTimeout: idleTimeout) { count += 1 }
            case .frames:
                for try await _ in socket.frames(Delimited(by: Data("\n".utf8)), idleTimeout: idleTimeout) { count += 1 }
            }
            return count
        }
    }

    @Test(arguments: Loop.allCases, [false, true]) func silenceEndsTheLoop(_ loop: Loop, isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        try await pair.client.write("one\ntwo\n")
        let error = await #expect(throws: AsyncSocketError.self) {
            // Long enough for a busy machine: closing with unread data resets the connection.
            _ = try await loop.run(pair.server, idleTimeout: .seconds(1.5))
        }
        #expect(error?.code == .idleTimeout)
        #expect(error?.message.contains("1.5 seconds") == true)
        // The connection has closed, not only the loop.
        let later = await outcome(of: { _ = try await pair.server.read() })
        #expect(later == .failed(.idleTimeout))
        #expect(try await pair.client.readToEnd().isEmpty)
    }

    @Test(arguments: Loop.allCases) func withoutALimitSilenceEndsNothing(_ loop: Loop) async throws {
        let pair = try await SocketPair()
        let reading = Task { try await loop.run(pair.server, idleTimeout: nil) }
        try await pair.server.readWaits()
        #expect(pair.server.connection?.waiters.isEmpty == true)
        try await pair.client.write("one\ntwo\n")
        try await pair.client.close()
        // The kernel may deliver the bytes in more pieces.
        let count = try await reading.value
        #expect(loop == .chunks ? count >= 2 : count == 2)
    }

    /// Returns the deadline of a watch according to the latest transfer, inside the turn.
    private func deadline(of waiter: IdleWaiter, _ socket: AsyncSocket) async -> Deadline? {
        await withCheckedContinuation { continuation in
            socket.perform { _ in continuation.resume(returning: waiter.deadline) }
        }
    }

    /// Only a byte in either direction restarts the timer.
    @Test(arguments: [false, true]) func whatMovesCountsInBothDirections(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let waiter = try #require(pair.server.operations).endWhenIdle(.seconds(3_600))
        var last = try #require(await deadline(of: waiter, pair.server))
        #expect(await deadline(of: waiter, pair.server) == last)
        try await pair.server.write("out")
        var next = try #require(await deadline(of: waiter, pair.server))
        #expect(next > last)
        (last, next) = (next, last)
        let reading = Task { try await pair.server.read(exactly: 2) }
        try await pair.server.readWaits()
        #expect(await deadline(of: waiter, pair.server) == last)
        // Half of the data that the read waits for.
        try await pair.client.write("i")
        try await eventually("the byte is there") { pair.server.readProgress?.bytesDone == 1 }
        next = try #require(await deadline(of: waiter, pair.server))
        #expect(next > last)
        try await pair.client.write("n")
        #expect(try await reading.value == Data("in".utf8))
        waiter.switchOff()
        #expect(await deadline(of: waiter, pair.server) == nil)
    }

    /// A handshake has its own timeout.
    @Test func aHandshakeIsNoSilence() async throws {
        let pair = try await SocketPair()
        let upgrade = Task { try await pair.server.startTLS(settings: TestCertificates.server()) }
        try await eventually("the handshake has begun") {
            await withCheckedContinuation { continuation in
                pair.server.perform { _ in
                    continuation.resume(returning: pair.server.connection?.isOpenForData == false)
                }
            }
        }
        // The timer of the watch starts when its deadline is first requested, after `start`.
        let start = ContinuousClock.now
        let waiter = try #require(pair.server.operations).endWhenIdle(.milliseconds(50))
        #expect(await deadline(of: waiter, pair.server) != nil)
        try await eventually("more than the time has passed") { start.duration(to: .now) > .milliseconds(200) }
        #expect(pair.server.isConnected)
        try await pair.client.startTLS(settings: TestCertificates.client())
        _ = try await upgrade.value
        let end = await outcome(of: { _ = try await pair.server.read() })
        #expect(end == .failed(.idleTimeout))
    }

    /// Starts a hundred loops and exits each immediately. The second to last has a short timeout.
    private func leaveLoops(_ pair: SocketPair) async throws {
        for round in 0..<100 {
            try await pair.client.write("\(round)\n")
            for try await line in pair.server.lines(idleTimeout: .seconds(round == 98 ? 5 : 3_600)) {
                #expect(line == "\(round)")
                break
            }
        }
    }

    /// The last loop has its own timeout, and the one before it is discarded.
    @Test func aLoopThatIsLeftWatchesNoMore() async throws {
        // On a busy machine, a task may be delayed for five seconds and exit its loop too late. Then try
        // again.
        for _ in 0..<30 {
            let pair = try await SocketPair()
            let outcome = await outcome { try await leaveLoops(pair) }
            guard outcome == .served else {
                try #require(outcome == .failed(.idleTimeout))
                continue
            }
            let count = await withCheckedContinuation { continuation in
                pair.server.perform { _ in continuation.resume(returning: pair.server.connection?.waiters.count) }
            }
            #expect(count == 1)
            let start = ContinuousClock.now
            try await eventually("more than the first time has passed") { start.duration(to: .now) > .seconds(6) }
            #expect(pair.server.isConnected)
            return
        }
        Issue.record("each attempt took too long")
    }

    @Test func aCancelledLoopLeavesTheConnection() async throws {
        let pair = try await SocketPair()
        let loop = Task { for try await _ in pair.server.lines(idleTimeout: .seconds(3_600)) {} }
        try await pair.server.readWaits()
        loop.cancel()
        #expect(await loop.outcome == .cancelled)
        try await pair.client.write("more\n")
        #expect(try await pair.server.readLine() == "more")
    }

    @Test(arguments: [false, true]) func aListenerEndsSilentConnections(isSecure: Bool) async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil)
        let errors = Findings<AsyncSocketError.Code?>()
        let running = Task {
            try await listener.run(
                idleTimeout: .milliseconds(100), onError: { error, _ in errors.add((error as? AsyncSocketError)?.code) }
            ) { try await $0.echo() }
        }
        for round in 1...2 {
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: isSecure ? .ofTests() : nil)
            _ = try? await client.readToEnd()
            try await eventually("it is reported") { errors.all.count == round }
        }
        #expect(errors.all == [.idleTimeout, .idleTimeout])
        await listener.close(timeout: .zero)
        try await running.value
    }
}

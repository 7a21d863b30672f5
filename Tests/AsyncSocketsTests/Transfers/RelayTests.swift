import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Two connections that a task relays.
@Suite(.timeLimit(.patient)) struct RelayTests {
    private struct Relay {
        let client: SocketPair
        let backend: SocketPair
        let result: Task<RelayTotals, any Error>
        /// The connections that failed.
        let failed = Locked<[AsyncSocket]>([])

        init(isClientSecure: Bool = false, isBackendSecure: Bool = false, idleTimeout: Duration? = nil) async throws {
            let client = try await SocketPair(isSecure: isClientSecure)
            let backend = try await SocketPair(isSecure: isBackendSecure)
            (self.client, self.backend) = (client, backend)
            result = Task { [failed] in
                try await client.server.relay(with: backend.client, idleTimeout: idleTimeout) { _, socket in
                    failed.withLock { $0.append(socket) }
                }
            }
        }
    }

    @Test(arguments: [false, true], [false, true])
    func bytesAndEndsPassInBothDirections(isClientSecure: Bool, isBackendSecure: Bool) async throws {
        let relay = try await Relay(isClientSecure: isClientSecure, isBackendSecure: isBackendSecure)
        let request = Data(pattern(3_000_000)), response = Data(pattern(5_000_000).reversed())
        let sending = Task {
            try await relay.client.client.write(request)
            relay.client.client.closeWriteStream()
        }
        #expect(try await relay.backend.server.readToEnd(maxLength: .max) == request)
        // The other direction stays open after the end of the first.
        let responding = Task {
            try await relay.backend.server.write(response)
            relay.backend.server.closeWriteStream()
        }
        #expect(try await relay.client.client.readToEnd(maxLength: .max) == response)
        try await sending.value
        try await responding.value
        let totals = try await relay.result.value
        #expect(totals == RelayTotals(forwarded: request.count, returned: response.count))
    }

    /// Neither peer closes its side: one is reset, and the other is silent.
    @Test(arguments: [false, true]) func aFailureOnOneSideEndsTheOther(isClientsFault: Bool) async throws {
        let relay = try await Relay(isClientSecure: true, isBackendSecure: true)
        let (failing, other) =
            isClientsFault ? (relay.client.client, relay.backend.server) : (relay.backend.server, relay.client.client)
        failing.disconnect(.reset)
        let error = await #expect(throws: AsyncSocketError.self) { try await other.readToEnd() }
        #expect(error?.code == .connectionReset)
        let reason = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(reason?.code == .connectionReset)
        let failed = relay.failed.withLock { $0 }
        #expect(failed.map { $0 === relay.client.server } == [isClientsFault])
        #expect(relay.client.server.isDisconnected)
        #expect(relay.backend.client.isDisconnected)
    }

    /// Bytes have passed in both directions, and each connection has been read from and written to.
    @Test(arguments: [false, true], [false, true])
    func aReadThatFailsIsItsSourcesFault(isSecure: Bool, isClientsFault: Bool) async throws {
        for _ in 0..<10 {
            let relay = try await Relay(isClientSecure: isSecure, isBackendSecure: isSecure)
            for (from, to) in [
                (relay.client.client, relay.backend.server), (relay.backend.server, relay.client.client),
            ] {
                try await from.write("x")
                #expect(try await to.read(exactly: 1) == Data("x"))
            }
            (isClientsFault ? relay.client.client : relay.backend.server).disconnect(.reset)
            #expect(await relay.result.outcome == .failed(.connectionReset))
            let failed = relay.failed.withLock { $0 }
            #expect(failed.map { $0 === relay.client.server } == [isClientsFault])
        }
    }

    /// The backend does not read, and is reset while a write of the relay is pending.
    @Test func aWriteThatFailsIsItsDestinationsFault() async throws {
        for _ in 0..<10 {
            let relay = try await Relay(isClientSecure: true)
            // No read of this direction is left that could fail first.
            relay.backend.server.closeWriteStream()
            #expect(try await relay.client.client.readToEnd().isEmpty)
            let sending = Task { try await relay.client.client.write(Data(count: 64 << 20)) }
            try await eventually("a write is pending") { relay.backend.client.pendingWriteByteCount > 0 }
            relay.backend.server.disconnect(.reset)
            let reason = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
            #expect(reason?.fault == .peer)
            let failed = relay.failed.withLock { $0 }
            #expect(failed.count == 1 && failed.first === relay.backend.client)
            #expect(await sending.outcome != .served)
        }
    }

    /// The backend has sent a FIN, so the relay reads only from the silent client.
    @Test(arguments: [false, true]) func aFailureAfterOneDirectionHasEndedIsNoticed(isSecure: Bool) async throws {
        let relay = try await Relay(isClientSecure: isSecure, isBackendSecure: isSecure)
        try await relay.backend.server.write("response")
        relay.backend.server.closeWriteStream()
        #expect(try await relay.client.client.readToEnd() == Data("response".utf8))
        relay.backend.server.disconnect(.reset)
        let reason = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(reason?.code == .connectionReset)
        try await eventually("the client is closed") { relay.client.server.isDisconnected }
    }

    /// The connection fails because of one of its own limits, not the relay's.
    @Test func anyFailureOfARelayedConnectionIsAReset() async throws {
        let relay = try await Relay(isClientSecure: true, isBackendSecure: true)
        try await relay.client.server.readWaits()
        let limit = try #require(relay.client.server.operations).endWhenIdle(.milliseconds(50))
        for socket in [relay.client.client, relay.backend.server] {
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.readToEnd() }
            #expect(error?.code == .connectionReset)
        }
        let reason = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(reason?.code == .idleTimeout)
        limit.switchOff()
    }

    @Test func aCancelledRelayEndsBothConnections() async throws {
        let relay = try await Relay(isClientSecure: true, isBackendSecure: true)
        try await relay.client.server.readWaits()
        relay.result.cancel()
        #expect(await relay.result.outcome == .cancelled)
        #expect(relay.failed.withLock { $0.isEmpty })
        for socket in [relay.client.client, relay.backend.server] {
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.readToEnd() }
            #expect(error?.code == .connectionReset)
        }
    }

    @Test func silenceInBothDirectionsIsAnError() async throws {
        let relay = try await Relay(isClientSecure: true, idleTimeout: .milliseconds(100))
        let error = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(error?.code == .idleTimeout)
        let end = await #expect(throws: AsyncSocketError.self) { try await relay.client.client.readToEnd() }
        #expect(end?.code == .connectionReset)
        let other = await #expect(throws: AsyncSocketError.self) { try await relay.backend.server.readToEnd() }
        #expect(other?.code == .connectionReset)
    }

    /// The connections time out at the same moment, on two threads.
    @Test func eachConnectionOfAnIdleRelayIsReset() async throws {
        for _ in 0..<100 {
            let relay = try await Relay(idleTimeout: .milliseconds(2))
            for socket in [relay.client.client, relay.backend.server] {
                let error = await #expect(throws: AsyncSocketError.self) { try await socket.readToEnd() }
                #expect(error?.code == .connectionReset)
            }
            #expect(await relay.result.outcome == .failed(.idleTimeout))
        }
    }

    /// A run in which the relay ended before the bytes were forwarded proves nothing.
    @Test func silenceAfterSomeBytesIsAnErrorToo() async throws {
        try await eventually("a run is quick enough") {
            let relay = try await Relay(idleTimeout: .milliseconds(500))
            let (client, backend) = (relay.client.client, relay.backend.server)
            for (from, to) in [(client, backend), (backend, client)] {
                guard await outcome(of: { try await from.write("x") }) == .served,
                    await outcome(of: { try await to.read(exactly: 1) }) == .served
                else { return false }
            }
            #expect(await outcome { try await client.read(timeout: .patient) } == .failed(.connectionReset))
            guard client.isDisconnected else { throw Unexpected(description: "the relay is never idle") }
            #expect(await relay.result.outcome == .failed(.idleTimeout))
            return true
        }
    }

    /// The relay has read all the bytes of the client and writes them to a backend that reads slowly, for
    /// longer than the limit. A run in which the machine paused for half of the limit proves nothing.
    @Test func aSlowBackendKeepsASilentClientFromTimingOut() async throws {
        let (limit, count) = (Duration.seconds(1), 60_000)
        try await eventually("a run is quick enough") {
            let (client, here) = try StyledSocket.attacked(.task)
            let (backend, there) = try StyledSocket.attacked(.task)
            try there.socket.setOption(.sendBufferSize, to: 1)
            try client.send([UInt8](repeating: 1, count: count))
            let result = Task { try await here.socket.relay(with: there.socket, idleTimeout: limit) }
            var (received, longestPause, last) = (0, Duration.zero, ContinuousClock.now)
            while received < count {
                try await eventually("a fifth of the limit has passed") {
                    last.duration(to: .now) > limit / 5 && backend.hasInput
                }
                longestPause = max(longestPause, last.duration(to: .now))
                last = .now
                let piece = try? backend.receive()
                guard let piece, !piece.isEmpty else { break }
                received += piece.count
            }
            guard received == count else {
                #expect(longestPause >= limit / 2, "the relay ended after \(received) bytes")
                return longestPause < limit / 2
            }
            client.finish()
            backend.finish()
            let totals = await result.result
            // The limit also applies to the end.
            guard max(longestPause, last.duration(to: .now)) < limit / 2 else { return false }
            #expect(try totals.get() == RelayTotals(forwarded: count, returned: 0))
            return true
        }
    }

    /// Bytes flow only to the client, and for longer than the limit. A run in which the machine paused for
    /// half of the limit proves nothing.
    @Test func oneDirectionKeepsTheOtherFromTimingOut() async throws {
        let limit = Duration.seconds(2)
        try await eventually("a run is quick enough") {
            let relay = try await Relay(isClientSecure: true, idleTimeout: limit)
            let start = ContinuousClock.now
            var last = start
            var longestPause = Duration.zero
            do {
                while start.duration(to: last) < limit * 2 {
                    try await relay.backend.server.write("x")
                    _ = try await relay.client.client.read(exactly: 1)
                    longestPause = max(longestPause, last.duration(to: .now))
                    last = .now
                }
                relay.backend.server.closeWriteStream()
                relay.client.client.closeWriteStream()
                #expect(try await relay.result.value.forwarded == 0)
                return true
            } catch {
                guard last.duration(to: .now) >= limit / 2 || longestPause >= limit / 2 else { throw error }
                return false
            }
        }
    }

    @Test func aFinishedRelayLeavesNoLimitBehind() async throws {
        let relay = try await Relay(idleTimeout: .seconds(30))
        relay.backend.server.closeWriteStream()
        relay.client.client.closeWriteStream()
        #expect(try await relay.result.value == RelayTotals(forwarded: 0, returned: 0))
        _ = try await relay.client.client.readToEnd()
        _ = try await relay.backend.server.readToEnd()
    }

    @Test func aRelayNeedsTwoConnections() async throws {
        let pair = try await SocketPair()
        let own = await #expect(throws: AsyncSocketError.self) { try await pair.client.relay(with: pair.client) }
        #expect(own?.code == .badParameter)
        #expect(own?.message == "a connection cannot be relayed to itself: pass another socket")
        for (one, other) in [(pair.client, AsyncSocket()), (AsyncSocket(), pair.client)] {
            let unused = await #expect(throws: AsyncSocketError.self) { try await one.relay(with: other) }
            #expect(unused?.code == .badConfiguration)
        }
        let closing = try await SocketPair()
        closing.server.autoDisconnectOnClosedReadStream = true
        let unfit = await #expect(throws: AsyncSocketError.self) { try await pair.client.relay(with: closing.server) }
        #expect(unfit?.code == .badConfiguration)
        #expect(unfit?.message.contains("autoDisconnectOnClosedReadStream") == true)
        // The misuse has closed nothing.
        try await pair.client.write("x")
        #expect(try await pair.server.read(exactly: 1) == Data("x"))
    }
}

import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A relay with a peer that does not read, so that writes to this peer are pending.
@Suite(.timeLimit(.patient)) struct StalledRelayTests {
    /// The peer that sends, and the peer that does not read.
    enum Direction: CaseIterable, Sendable { case toBackend, toClient }

    private struct Stalled {
        /// Sends `data`.
        let source: AsyncSocket
        /// Does not read.
        let sink: AsyncSocket
        /// The relay's sockets towards the two peers.
        let (atSource, atSink): (AsyncSocket, AsyncSocket)
        let result: Task<RelayTotals, any Error>
        let writing: Task<Void, any Error>
        /// The connections that failed.
        let failed = Locked<[AsyncSocket]>([])
        let data = pattern(3_000_000)

        /// - Parameter ends: Whether the source closes its direction after the data.
        init(_ direction: Direction, isSecure: Bool, ends: Bool = false, idleTimeout: Duration? = nil) async throws {
            let (one, other) = (try await SocketPair(isSecure: isSecure), try await SocketPair(isSecure: isSecure))
            (source, atSource, atSink, sink) = (one.client, one.server, other.client, other.server)
            // Together less than the data.
            for socket in [source, atSource, atSink, sink] {
                try socket.setOption(.sendBufferSize, to: 65_536)
                try socket.setOption(.receiveBufferSize, to: 65_536)
            }
            result = Task { [atSource, atSink, failed] in
                let (first, second) = direction == .toBackend ? (atSource, atSink) : (atSink, atSource)
                return try await first.relay(with: second, idleTimeout: idleTimeout) { _, socket in
                    failed.withLock { $0.append(socket) }
                }
            }
            writing = Task.immediate { [source, data] in
                try await source.write(data)
                if ends { source.closeWriteStream() }
            }
            let (atSink, result) = (atSink, result)
            try await eventually("the relay's write is pending") {
                atSink.writeProgress != nil || result.isCancelled || atSink.isDisconnected
            }
        }

        /// The source and the sink, which must both fail because the relay resets their connections.
        func expectResets() async throws {
            #expect(await writing.outcome == .failed(.connectionReset))
            for socket in [source, sink] {
                let error = await #expect(throws: AsyncSocketError.self) { try await socket.readToEnd(maxLength: .max) }
                #expect(error?.code == .connectionReset)
            }
            #expect(atSource.isDisconnected && atSink.isDisconnected)
        }
    }

    @Test(arguments: Direction.allCases, [false, true])
    func theOtherDirectionContinues(_ direction: Direction, isSecure: Bool) async throws {
        let relay = try await Stalled(direction, isSecure: isSecure)
        for number in 0..<20 {
            try await relay.sink.write("line \(number)\n")
            #expect(try await relay.source.readLine() == "line \(number)")
        }
        // The data is still queued, so the lines did not depend on it.
        try await eventually("the data is still pending") { relay.atSink.writeProgress != nil }
        let received = try await relay.sink.read(exactly: relay.data.count)
        let isWhole = received == relay.data
        #expect(isWhole)
        try await relay.writing.value
        relay.source.closeWriteStream()
        relay.sink.closeWriteStream()
        let totals = try await relay.result.value
        let counts = direction == .toBackend ? [totals.forwarded, totals.returned] : [totals.returned, totals.forwarded]
        #expect(counts == [relay.data.count, 20 * 7 + 10])
    }

    /// Both peers close their direction. The end of the stalled direction arrives after its data, and the
    /// other end immediately.
    @Test(arguments: Direction.allCases, [false, true])
    func endsArriveInTheirOrder(_ direction: Direction, isSecure: Bool) async throws {
        let relay = try await Stalled(direction, isSecure: isSecure, ends: true)
        try await relay.sink.write("bye")
        relay.sink.closeWriteStream()
        #expect(try await relay.source.readToEnd() == Data("bye"))
        try await eventually("the data is still pending") { relay.atSink.writeProgress != nil }
        let received = try await relay.sink.readToEnd(maxLength: relay.data.count)
        let isWhole = received == relay.data
        #expect(isWhole)
        try await relay.writing.value
        let totals = try await relay.result.value
        #expect(Set([totals.forwarded, totals.returned]) == [relay.data.count, 3])
    }

    /// The stalled peer fails while a write is pending.
    @Test(arguments: Direction.allCases, [false, true])
    func aResetOfTheStalledPeerEndsTheRelay(_ direction: Direction, isSecure: Bool) async throws {
        let relay = try await Stalled(direction, isSecure: isSecure)
        relay.sink.disconnect(.reset)
        let error = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(error?.code == .connectionReset)
        #expect(relay.failed.withLock { $0 }.map { $0 === relay.atSink } == [true])
        #expect(await relay.writing.outcome == .failed(.connectionReset))
        let end = await #expect(throws: AsyncSocketError.self) { try await relay.source.readToEnd() }
        #expect(end?.code == .connectionReset)
    }

    /// The relay still forwards what it received before the reset. The other peer must not mistake that for
    /// all the data.
    @Test(arguments: Direction.allCases, [false, true])
    func aResetOfTheSendingPeerFollowsItsBytes(_ direction: Direction, isSecure: Bool) async throws {
        let relay = try await Stalled(direction, isSecure: isSecure)
        relay.source.disconnect(.reset)
        let end = await #expect(throws: AsyncSocketError.self) { try await relay.sink.readToEnd(maxLength: .max) }
        #expect(end?.code == .connectionReset)
        let error = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(error?.code == .connectionReset)
        #expect(relay.failed.withLock { $0 }.map { $0 === relay.atSource } == [true])
    }

    @Test(arguments: Direction.allCases, [false, true])
    func aCancelledRelayResetsBothConnections(_ direction: Direction, isSecure: Bool) async throws {
        let relay = try await Stalled(direction, isSecure: isSecure)
        relay.result.cancel()
        #expect(await relay.result.outcome == .cancelled)
        #expect(relay.failed.withLock { $0 }.isEmpty)
        try await relay.expectResets()
    }

    /// A waiting write moves no bytes.
    @Test(arguments: Direction.allCases) func aStalledRelayIsIdle(_ direction: Direction) async throws {
        let relay = try await Stalled(direction, isSecure: true, idleTimeout: .milliseconds(300))
        let error = await #expect(throws: AsyncSocketError.self) { try await relay.result.value }
        #expect(error?.code == .idleTimeout)
        try await relay.expectResets()
    }
}

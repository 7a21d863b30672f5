import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// Connections with a limit on the rate of their bytes.
///
/// A limited transfer takes at least its time, on any machine.
@Suite(.timeLimit(.patient)) struct ByteRateTests {
    private static let rate = ByteRate(bytesPerSecond: 200_000, burst: 10_000)
    private static let count = 60_000
    private static let leastTime = Duration.milliseconds(250)

    private static func measure(_ body: () async throws -> Void) async throws -> Duration {
        let start = ContinuousClock.now
        try await body()
        return .now - start
    }

    // MARK: - The allowance

    /// Random reads and pauses. What passes never exceeds the burst and what the rate has added since.
    @Test(arguments: UInt64(0)..<20) func anAllowanceNeverExceedsItsRate(seed: UInt64) throws {
        var dice = SeededGenerator(seed: seed)
        let rate = ByteRate(
            bytesPerSecond: Int.random(in: 1...1_000_000, using: &dice), burst: Int.random(in: 1...100_000, using: &dice))
        let start = Deadline.now
        var (now, passed, pauses) = (start, 0, 0)
        var allowance = ByteAllowance(rate, after: nil, at: now)
        for _ in 0..<2_000 {
            let count = allowance.count(at: now)
            if count == 0 {
                pauses += 1
                let end = try #require(allowance.end(ofPauseAt: now))
                #expect(end > now)
                now = end
                #expect(allowance.count(at: now) > 0)
            } else {
                let step = Bool.random(using: &dice) ? count : Int.random(in: 1...count, using: &dice)
                allowance.take(step)
                passed += step
                let isLater = Bool.random(using: &dice)
                if isLater { now = try #require(Deadline(after: Double.random(in: 0...0.01, using: &dice), from: now)) }
            }
            let added = now.seconds(since: start) * Double(rate.bytesPerSecond)
            #expect(Double(passed) <= Double(rate.burst) + added + 1)
        }
        #expect(pauses > 0)
    }

    @Test func unusableRatesAreClamped() throws {
        let slowest = ByteRate(bytesPerSecond: -5, burst: .min)
        #expect(slowest.bytesPerSecond == 1 && slowest.burst == 1)
        #expect(ByteRate(bytesPerSecond: 7).burst == 7 && ByteRate(bytesPerSecond: 2_000, burst: 1).burst == 100)
        for rate in [slowest, ByteRate(bytesPerSecond: .max), ByteRate(bytesPerSecond: 1, burst: .max)] {
            let now = Deadline.now
            var allowance = ByteAllowance(rate, after: nil, at: now)
            let count = allowance.count(at: now)
            #expect(count == rate.burst)
            allowance.take(count)
            #expect(allowance.count(at: now) == 0)
            let end = try #require(allowance.end(ofPauseAt: now))
            #expect(end > now && allowance.count(at: end) > 0)
        }
    }

    /// The whole burst passes without a pause, in any pieces.
    @Test func aBurstIsNotInterrupted() {
        let now = Deadline.now
        var allowance = ByteAllowance(Self.rate, after: nil, at: now)
        for _ in 0..<100 {
            #expect(allowance.count(at: now) >= 100)
            allowance.take(100)
        }
        #expect(allowance.count(at: now) == 0)
    }

    /// A program that changes the rate often does not lift the limit.
    @Test func aNewRateBringsNoNewBurst() throws {
        let start = Deadline.now
        var (now, passed) = (start, 0)
        var allowance = ByteAllowance(Self.rate, after: nil, at: now)
        for step in 0..<1_000 {
            let rate = ByteRate(bytesPerSecond: Self.rate.bytesPerSecond - step % 2, burst: Self.rate.burst)
            allowance = ByteAllowance(rate, after: allowance, at: now)
            let count = allowance.count(at: now)
            allowance.take(count)
            passed += count
            now = try #require(Deadline(after: 0.001, from: now))
        }
        #expect(Double(passed) <= Double(Self.rate.burst) + now.seconds(since: start) * Double(Self.rate.bytesPerSecond) + 1)
    }

    // MARK: - Transfers

    @Test(arguments: [false, true]) func writesAreLimited(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        pair.client.writeRateLimit = Self.rate
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            async let received = pair.server.read(exactly: Self.count)
            // Many small writes and one large one.
            for start in stride(from: 0, to: 5_000, by: 100) { try await pair.client.write(data[start..<start + 100]) }
            try await pair.client.write(data[5_000...])
            #expect(try await received == data)
        }
        #expect(time >= Self.leastTime)
    }

    @Test(arguments: [false, true]) func readsAreLimited(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        pair.server.readRateLimit = Self.rate
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            async let sent: Void = pair.client.write(data)
            var received = Data()
            while received.count < Self.count, let next = try await pair.server.read(maxLength: 1_000) { received += next }
            #expect(received == data)
            try await sent
        }
        #expect(time >= Self.leastTime)
    }

    /// The limit of the connection to the backend also limits the client.
    @Test func relaysAreLimited() async throws {
        let (client, backend) = (try await SocketPair(), try await SocketPair(isSecure: true))
        backend.client.writeRateLimit = Self.rate
        let relaying = Task { try await client.server.relay(with: backend.client) }
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            async let received = backend.server.readToEnd()
            try await client.client.write(data)
            client.client.closeWriteStream()
            #expect(try await received == data)
        }
        #expect(time >= Self.leastTime)
        backend.server.closeWriteStream()
        #expect(try await relaying.value.forwarded == Self.count)
    }

    /// The kernel sends files without TLS.
    @Test(arguments: [false, true]) func filesAreLimited(isSecure: Bool) async throws {
        let folder = try TemporaryFolder()
        let data = Data(pattern(Self.count))
        try data.write(to: folder.url("file"))
        let pair = try await SocketPair(isSecure: isSecure)
        pair.client.writeRateLimit = Self.rate
        let time = try await Self.measure {
            async let received = pair.server.read(exactly: Self.count)
            try await pair.client.write(contentsOfFile: folder.path("file"))
            #expect(try await received == data)
        }
        #expect(time >= Self.leastTime)
    }

    /// With a delegate, the whole write is queued.
    @Test func queuedWritesAreLimited() async throws {
        let pair = try await SocketPair()
        pair.client.writeRateLimit = Self.rate
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            pair.client.write(data, withTimeout: -1, tag: 0)
            let received = try await pair.server.read(exactly: Self.count)
            #expect(received == data)
        }
        #expect(time >= Self.leastTime)
    }

    // MARK: - Changes and closes

    @Test(arguments: [false, true]) func withoutALimitPausedBytesMoveAtOnce(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let slowest = ByteRate(bytesPerSecond: 1, burst: 1)
        (pair.server.readRateLimit, pair.client.writeRateLimit) = (slowest, slowest)
        let data = Data(pattern(Self.count))
        async let received = pair.server.read(exactly: Self.count)
        async let sent: Void = pair.client.write(data)
        try await pair.server.turn("its input is paused") { $0.data.channel?.isInputPaused == true }
        try await pair.client.turn("its output is paused") { $0.data.channel?.retry != nil }
        (pair.server.readRateLimit, pair.client.writeRateLimit) = (nil, nil)
        try await sent
        #expect(try await received == data)
    }

    /// The peer has already closed the connection, and the bytes wait in the kernel.
    @Test(arguments: [false, true]) func theBytesBeforeAnEndAreNotLost(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        pair.server.readRateLimit = Self.rate
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            try await pair.client.write(data)
            try await pair.client.close()
            #expect(try await pair.server.readToEnd() == data)
        }
        #expect(time >= Self.leastTime)
    }

    /// The connection closes after its queued writes.
    @Test(arguments: [false, true]) func queuedBytesPrecedeTheEnd(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        pair.client.writeRateLimit = Self.rate
        let data = Data(pattern(Self.count))
        let time = try await Self.measure {
            async let received = pair.server.readToEnd()
            pair.client.write(data, withTimeout: -1, tag: 0)
            pair.client.disconnectAfterWriting()
            let all = try await received
            #expect(all == data)
        }
        #expect(time >= Self.leastTime)
    }

    @Test func aHandshakeIsLimited() async throws {
        let pair = try await SocketPair()
        pair.server.writeRateLimit = ByteRate(bytesPerSecond: 4_000, burst: 100)
        let time = try await Self.measure {
            async let atServer: TLSSession = pair.server.startTLS(settings: TestCertificates.server())
            try await pair.client.startTLS(settings: TestCertificates.client())
            _ = try await atServer
        }
        // The server sends a certificate.
        #expect(time >= .milliseconds(100))
    }

    /// A peer that sends a few bytes at a time does not extend a handshake or a dialogue.
    @Test(arguments: [false, true]) func tricklingGivesNoMoreTime(isInDialogue: Bool) async throws {
        let pair = try await SocketPair()
        pair.client.writeRateLimit = ByteRate(bytesPerSecond: 40, burst: 10)
        // The beginning of a long ClientHello, or a long command.
        let beginning: [UInt8] = isInDialogue ? [] : [22, 3, 1, 0x27, 0x10, 1, 0, 0x27, 0x0C, 3, 3]
        pair.client.write(Data(beginning + [UInt8](repeating: 0x4E, count: 5_000)), withTimeout: -1, tag: 0)
        var settings = try TestCertificates.server()
        settings.handshakeTimeout = isInDialogue ? .patient : .milliseconds(700)
        let (server, limited) = (pair.server, settings)
        let error = await #expect(throws: AsyncSocketError.self) {
            if isInDialogue {
                try await server.acceptStartTLS(
                    as: .smtp(greeting: "localhost"), settings: limited, dialogueTimeout: .milliseconds(700))
            } else {
                try await server.startTLS(settings: limited)
            }
        }
        #expect(error?.code == .handshakeTimeout)
    }

    /// Injected plaintext is found although the limit on the rate keeps it in the kernel.
    @Test func injectedBytesThatWaitAreFound() async throws {
        let listener = try RawSocket.listening()
        let socket = AsyncSocket()
        socket.readRateLimit = ByteRate(bytesPerSecond: 1, burst: 7)
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let peer = try listener.accepted()
        try peer.send("READY\r\nINJECTED\r\n")
        #expect(try await socket.readLine() == "READY")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await socket.startTLS(settings: TestCertificates.client())
        }
        #expect(error?.code == .earlyPlaintext)
    }

    @Test func acceptedConnectionsInheritTheLimits() async throws {
        let listener = try SocketListener(address: .loopback(), configure: { $0.writeRateLimit = Self.rate })
        let serving = Task {
            try await listener.run { socket in
                #expect(socket.writeRateLimit == Self.rate && socket.readRateLimit == nil)
                try await socket.write(Data(pattern(Self.count)))
            }
        }
        let client = AsyncSocket()
        let time = try await Self.measure {
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            #expect(try await client.readToEnd() == Data(pattern(Self.count)))
        }
        #expect(time >= Self.leastTime)
        await listener.close(timeout: .zero)
        try await serving.value
    }
}

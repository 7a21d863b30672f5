import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets

/// Races between operations and their cancellation, a hundred thousand in total.
@Suite(.timeLimit(.patient), .ownThreads) struct AsyncCancellationRaceTests {
    /// Returns consecutive four-byte numbers.
    private static func numbers(_ range: Range<Int>) -> Data {
        var data = Data(capacity: range.count * 4)
        for number in range { withUnsafeBytes(of: UInt32(number).bigEndian) { data.append(contentsOf: $0) } }
        return data
    }

    /// Used by a test's tasks and for their cancellation.
    private let threads = TestThreads()
    private let canceller = TestThreads()

    /// Cancels `task` on another thread after a varying delay.
    private func cancel(_ task: Task<some Sendable, any Error>, after spins: Int) {
        Task(executorPreference: canceller) {
            for _ in 0..<spins { _ = Atomic<Int>(0) }
            task.cancel()
        }
    }

    private func send(_ count: Int, on socket: AsyncSocket, seed: UInt64) async throws {
        var generator = SeededGenerator(seed: seed)
        var next = 0
        while next < count {
            let step = min(Int.random(in: 1...20, using: &generator), count - next)
            try await socket.write(Self.numbers(next..<next + step))
            next += step
        }
    }

    /// A cancelled reader leaves exactly those bytes to the next one that it did not return.
    @Test(arguments: [false, true])
    func readsThatAreCancelledAtAnyMomentLoseNoByte(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, server) = (pair.client, pair.server)
        let rounds = 20_000
        var generator = SeededGenerator(seed: 1)
        let sender = Task(executorPreference: threads) { try await send(.max, on: server, seed: 2) }
        var received = Data()
        var next = 0
        var (cancelled, served) = (0, 0)
        for round in 0..<rounds {
            let count = Int.random(in: 1...300, using: &generator)
            let read = Task(executorPreference: threads) { () async throws -> Data in
                switch round % 4 {
                case 0: try await client.read(exactly: count)
                case 1: try await client.read(until: Data([UInt8(count & 0xFF)]))
                case 2: try await client.read(maxLength: count) ?? Data()
                default: Data(try await client.read(exactly: count % 5))
                }
            }
            cancel(read, after: Int.random(in: 0...60, using: &generator))
            switch await read.result {
            case .success(let data):
                received += data
                served += 1
            case .failure(let error):
                #expect(error is CancellationError)
                cancelled += 1
            }
            let whole = received.count / 4
            #expect(received.prefix(whole * 4) == Self.numbers(next..<next + whole))
            received = Data(received.dropFirst(whole * 4))
            next += whole
        }
        #expect(served + cancelled == rounds)
        #expect(served > 0 && cancelled > 0 && next > 0)
        sender.cancel()
        _ = await sender.result
        client.disconnect()
    }

    /// Each message arrives completely or not at all, and is missing only if its task was cancelled.
    @Test(arguments: [false, true])
    func writesThatAreCancelledAtAnyMomentStayWhole(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, server) = (pair.client, pair.server)
        let rounds = 20_000
        let receiver = Task(executorPreference: threads) { () async throws -> [Int] in
            var numbers: [Int] = []
            for try await line in server.lines {
                let words = line.split(separator: " ")
                let number = try #require(Int(words[0]))
                #expect(words[1].utf8.count == number % 1999 + 1)
                numbers.append(number)
            }
            return numbers
        }
        var generator = SeededGenerator(seed: 3)
        var served: [Int] = []
        var cancelled = 0
        for group in 0..<rounds / 8 {
            let numbers = (group * 8)..<(group * 8 + 8)
            let tasks = numbers.map { number in
                Task(executorPreference: threads) {
                    try await client.write("\(number) \(String(repeating: "x", count: number % 1999 + 1))\n")
                }
            }
            for task in tasks where Bool.random(using: &generator) {
                cancel(task, after: Int.random(in: 0...60, using: &generator))
            }
            for (task, number) in zip(tasks, numbers) {
                switch await task.result {
                case .success: served.append(number)
                case .failure(let error):
                    #expect(error is CancellationError)
                    cancelled += 1
                }
            }
        }
        try await client.close()
        let arrived = try await receiver.value
        #expect(Set(arrived).count == arrived.count)
        #expect(Set(served).isSubset(of: Set(arrived)))
        #expect(served.count + cancelled == rounds)
        #expect(cancelled > 0)
    }

    /// The operations wait, and complete at the same time as they are cancelled.
    @Test(arguments: [false, true])
    func anAnswerAndACancellationResumeTheTaskOnce(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, server) = (pair.client, pair.server)
        let rounds = 20_000
        var generator = SeededGenerator(seed: 4)
        var (expected, cancelled, pending) = (0, 0, 0)
        for round in 0..<rounds {
            let number = UInt8(truncatingIfNeeded: round)
            let read = Task.immediate(executorPreference: threads) { try await client.read(exactly: 1) }
            cancel(read, after: Int.random(in: 0...200, using: &generator))
            try await server.write([number])
            pending += 1
            switch await read.result {
            case .success(let data):
                #expect(data == Data([UInt8(truncatingIfNeeded: expected)]))
                expected += 1
                pending -= 1
            case .failure: cancelled += 1
            }
            guard pending > 20 else { continue }
            for byte in try await client.read(exactly: pending) {
                #expect(byte == UInt8(truncatingIfNeeded: expected))
                expected += 1
            }
            pending = 0
        }
        if pending > 0 { expected += try await client.read(exactly: pending).count }
        #expect(expected == rounds)
        #expect(cancelled > 0 && cancelled < rounds)
    }

    /// Cancelled or not, a socket is either connected or reusable.
    @Test func connectsThatAreCancelledAtAnyMomentLeaveNothing() async throws {
        // The kernel accepts all of them.
        let listener = try RawSocket.listening(backlog: 2000)
        let port = try listener.localPort
        var generator = SeededGenerator(seed: 5)
        var (served, cancelled) = (0, 0)
        let socket = AsyncSocket()
        for _ in 0..<1000 {
            let connect = Task(executorPreference: threads) { try await socket.connect(to: "127.0.0.1", port: port) }
            cancel(connect, after: Int.random(in: 0...1000, using: &generator))
            switch await connect.result {
            case .success:
                served += 1
                #expect(await outcome { try await socket.connect(to: "127.0.0.1", port: port) } == .failed(.badConfiguration))
                try await socket.close()
            case .failure(let error):
                #expect(error is CancellationError)
                cancelled += 1
                #expect(!socket.isConnected)
            }
        }
        #expect(served + cancelled == 1000)
        #expect(cancelled > 0)
    }

    /// Each connection is either secure or closed.
    @Test func handshakesThatAreCancelledAtAnyMomentLeaveNoPlaintext() async throws {
        var generator = SeededGenerator(seed: 6)
        let settings = try TestCertificates.server()
        for _ in 0..<60 {
            let pair = try await SocketPair()
            let (client, server) = (pair.client, pair.server)
            let atServer = Task(executorPreference: threads) { try await server.startTLS(settings: settings) }
            let atClient = Task(executorPreference: threads) {
                try await client.startTLS(settings: TestCertificates.client(), trust: { _ in true })
            }
            cancel(atClient, after: Int.random(in: 0...4000, using: &generator))
            switch await atClient.result {
            case .success:
                #expect(client.isSecure)
                try await client.write("hello")
                _ = try await atServer.value
                #expect(try await server.read(exactly: 5) == Data("hello"))
            case .failure(let error):
                #expect(error is CancellationError)
                #expect(!client.isConnected)
                #expect(await outcome { try await client.write("secret") } != .served)
                _ = await atServer.result
                let rest = try? await server.read()
                #expect(rest == nil || rest == .some(nil))
            }
        }
    }
}

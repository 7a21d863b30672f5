import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Progress reports of transfers: values, frequency and executor.
@Suite(.timeLimit(.patient)) struct TransferProgressTests {
    private let folder: TemporaryFolder
    private let source: String

    init() throws {
        folder = try TemporaryFolder()
        source = folder.path("source")
    }

    /// Checks that no report is repeated, and that the last report is complete.
    private func check(_ reports: [TransferProgress], _ count: Int, total: Int?) {
        #expect(reports.last?.bytesDone == count)
        #expect(reports.last?.total == total)
        #expect(reports.map(\.bytesDone) == reports.map(\.bytesDone).sorted())
        #expect(reports.allSatisfy { $0.bytesPerSecond >= 0 })
    }

    // MARK: - Over sockets

    @Test(arguments: [false, true], [0, 1, 16 << 20])
    func bothSidesSayAtTheEndThatAllIsDone(isSecure: Bool, count: Int) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, source) = (pair.client, source)
        try pattern(count).write(to: folder.url("source"))
        let sending = Task {
            var sent: [TransferProgress] = []
            for _ in 0..<2 { try await client.write(contentsOfFile: source) { sent.append($0) } }
            try await client.close()
            return sent
        }
        var received: [TransferProgress] = []
        try await pair.server.readToFile(folder.path("a"), exactly: count) { received.append($0) }
        check(received, count, total: count)
        received = []
        try await pair.server.readToFile(folder.path("b"), maxLength: .max) { received.append($0) }
        check(received, count, total: nil)
        let sent = try await sending.value
        #expect(sent.last?.bytesDone == count && sent.last?.fraction == 1)
        #expect(sent.filter { $0.bytesDone == count }.count >= 2)
    }

    /// The peer does not read until there are five reports.
    @Test(arguments: [false, true]) func reportsGoOnTenTimesASecondWhileNothingMoves(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let count = 16 << 20
        try pattern(count).write(to: folder.url("source"))
        let (seen, gate, server) = (Findings<TransferProgress>(), try TestSignal(), pair.server)
        let reading = Task {
            try await gate.wait(within: .patient)
            return try await server.read(exactly: count).count
        }
        let start = ContinuousClock.now
        try await pair.client.write(contentsOfFile: source) { progress in
            seen.add(progress)
            if seen.all.count == 5 { gate.fire() }
        }
        let time = start.duration(to: .now)
        #expect(try await reading.value == count)
        check(seen.all, count, total: count)
        #expect(seen.all[4].bytesDone < count)
        #expect(seen.all.count <= Int(time / .milliseconds(100)) + 1)
    }

    /// A reader also receives reports while the peer sends nothing.
    @Test @MainActor func reportsComeWhereTheCallerRuns() async throws {
        let pair = try await SocketPair()
        var shown: [String] = []
        try await pair.client.write("hello")
        try await pair.server.readToFile(folder.path("a"), exactly: 6) { progress in
            MainActor.assertIsolated()
            shown.append("\(progress.bytesDone) of \(progress.total ?? 0)")
            if shown.count == 3 { pair.client.write(Data("!".utf8), withTimeout: -1) }
        }
        #expect(shown.count >= 4)
        #expect(shown.last == "6 of 6")
    }

    @Test(arguments: [false, true]) func aCancelledWriteSaysNoEnd(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, source, count) = (pair.client, source, 16 << 20)
        try pattern(count).write(to: folder.url("source"))
        let seen = Findings<TransferProgress>()
        let sending = Task { try await client.write(contentsOfFile: source) { seen.add($0) } }
        try await eventually("a report comes") { !seen.all.isEmpty }
        sending.cancel()
        #expect(await sending.outcome == .cancelled)
        #expect(seen.all.last?.bytesDone != count)
        // The transfer had started, so it continues, and the stream stays intact.
        #expect(try await pair.server.read(exactly: count) == pattern(count))
    }

    @Test func aPeerThatGoesEarlyIsNamedWithTheBytesSoFar() async throws {
        let pair = try await SocketPair()
        try pattern(16 << 20).write(to: folder.url("source"))
        var last: TransferProgress?
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.client.write(contentsOfFile: source) { progress in
                last = progress
                pair.server.disconnect()
            }
        }
        #expect(error?.code == .connectionReset)
        let done = try #require(last).bytesDone
        #expect(error?.message.contains("of \(16 << 20) bytes of \"\(source)\"") == true)
        #expect(done < 16 << 20)
    }

    // MARK: - Values

    /// A file that already has its final name counts as received, even if the task was cancelled meanwhile.
    @Test func anOperationThatIsDoneInSpiteOfACancellationHasItsResult() async throws {
        let begun = try TestSignal()
        let measuring = Task {
            var meter = TransferMeter(total: nil)
            return try await meter.reporting(to: { _ in }, count: { 0 }) {
                begun.fire()
                // Ends when the task is cancelled.
                let (cancellation, continuation) = AsyncStream<Void>.makeStream()
                for await _ in cancellation {}
                continuation.finish()
                // Gives the reports the chance to end first.
                for _ in 0..<1_000 { await Task.yield() }
                return "received"
            }
        }
        try await begun.wait(within: .patient)
        measuring.cancel()
        #expect(try await measuring.value == "received")
    }

    @Test func theRateIsOverTheLastThreeSeconds() {
        let start = ContinuousClock.now
        var meter = TransferMeter(total: 1_000, start: start)
        #expect(meter.progress(0, at: start).bytesPerSecond == 0)
        #expect(meter.progress(100, at: start + .seconds(1)).bytesPerSecond == 100)
        #expect(meter.progress(100, at: start + .seconds(2)).bytesPerSecond == 50)
        #expect(meter.progress(400, at: start + .seconds(4)).bytesPerSecond == 100)
        #expect(meter.progress(400, at: start + .seconds(6)).bytesPerSecond == 75)
        let stalled = meter.progress(400, at: start + .seconds(7))
        #expect(stalled == TransferProgress(bytesDone: 400, total: 1_000, bytesPerSecond: 0))
        #expect(stalled.fraction == 0.4)
    }

    @Test(arguments: [
        (0, 0, 0.0, "0 bytes of 0 bytes (100 %), 0 bytes/s"),
        (1_023, nil, 1, "1023 bytes, 1 bytes/s"),
        (1 << 20, 4 << 20, 1536, "1.0 MiB of 4.0 MiB (25 %), 1.5 KiB/s"),
        (Int.max, Int.max, 1e30, "8.0 EiB of 8.0 EiB (100 %), 867361737988.4 EiB/s"),
        (Int.max, 1, .infinity, "8.0 EiB of 1 bytes (100 %), 0 bytes/s"),
        (-1, -1, .nan, "0 bytes of 0 bytes (100 %), 0 bytes/s"),
        (0, nil, 1e300, "0 bytes, 100000000000000000.0 EiB/s"),
    ]) func progressPrintsForPeople(_ done: Int, _ total: Int?, _ rate: Double, _ text: String) {
        #expect("\(TransferProgress(bytesDone: done, total: total, bytesPerSecond: rate))" == text)
    }
}

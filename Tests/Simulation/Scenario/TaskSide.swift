internal import AsyncSockets
internal import CSimulation
internal import Foundation
internal import SocketCore

/// A socket that tasks use on its event loop: one reads while another one writes.
final class TaskSide: Side, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    private let index: Int
    private let scenario: Scenario
    private let plan: Plan
    private var socket: AsyncSocket?
    private weak var observed: AsyncSocket?
    private let outgoing: Pattern
    private let incoming: Pattern
    private var written = 0
    private var received = 0
    private var isLastPhase = false
    private var task: Task<Void, Never>?
    private var result: Result<Void, any Error>?

    init(_ index: Int, _ descriptor: Int32, _ scenario: Scenario) {
        (self.index, self.scenario, plan) = (index, scenario, scenario.plan)
        name = "task \(index)"
        outgoing = plan.pattern(of: index, scenario.choices.seed)
        incoming = plan.pattern(of: 1 - index, scenario.choices.seed)
        do {
            socket = try AsyncSocket(adopting: descriptor)
            observed = socket
        } catch {
            scenario.scheduler.fail("\(name): \(error)")
        }
    }

    var loop: SocketEventLoop? { socket?.executor }
    var isReleased: Bool { observed == nil }

    private func complain(_ text: String) { scenario.scheduler.fail("\(name): \(text)") }
    private func note(_ event: StaticString, _ number: Int = 0) { scenario.trace.add(event, index, number) }

    /// A choice of the reading task (0) or the writing one (1).
    private func pick(_ count: Int, _ direction: UInt16) -> Int {
        scenario.choices.pick(count, Choices.Stream.sides + UInt16(2 * index) + direction)
    }

    /// Returns a number of bytes, at most `rest`.
    private func size(_ rest: Int, _ direction: UInt16) -> Int {
        let limit = min(rest, [20_000, 1, 30, 1_000][pick(4, direction)])
        return limit - pick(limit, direction)
    }

    func run() {
        guard let socket else { return }
        task = Task(executorPreference: socket.executor) { [self] in
            do {
                try await perform(socket)
                finish(.success(()))
            } catch {
                if (error as? AsyncSocketError)?.code == .closedByPeer, scenario.isVictim(index) { await drain(socket) }
                finish(.failure(error))
                socket.disconnect()
            }
        }
    }

    /// What arrived before an orderly end can still be read.
    private func drain(_ socket: AsyncSocket) async {
        while let data = try? await socket.read() { try? check(data) }
        let missing = scenario.arrivedCount(index) - received
        if missing > 0 { complain("\(missing) bytes cannot be read after the end") }
    }

    private func finish(_ result: Result<Void, any Error>) {
        note("finishes")
        if self.result != nil { complain("the task finishes twice") }
        self.result = result
        if case .failure(let error) = result, !plan.mayFail { complain("the task fails: \(error)") }
    }

    private func perform(_ socket: AsyncSocket) async throws {
        for (number, phase) in plan.phases.enumerated() {
            if number > 0 { try await upgrade(socket) }
            isLastPhase = number + 1 == plan.phases.count
            let ends = (received + phase.counts[1 - index], written + phase.counts[index])
            async let reading: Void = read(socket, to: ends.0)
            try await write(socket, to: ends.1)
            try await reading
        }
        if index == 0 {
            if pick(2, 1) == 0 { return try await socket.close() }
            socket.closeWriteStream()
        }
        guard try await socket.read() == nil else { return complain("more bytes than were sent") }
        try await socket.close()
    }

    private func upgrade(_ socket: AsyncSocket) async throws {
        note("startTLS")
        if index == 0 {
            try await socket.startTLS(settings: Certificates.client)
        } else {
            try await socket.startTLS(settings: Certificates.server)
        }
        note("isSecure")
    }

    // MARK: - Writing

    private func write(_ socket: AsyncSocket, to end: Int) async throws {
        while written < end {
            let count = size(end - written, 1)
            let bytes = Array(outgoing.bytes[written..<written + count])
            written += count
            if pick(2, 1) == 0 { try await socket.write(Data(bytes)) } else { try await socket.write(bytes) }
            note("wrote", count)
            switch pick(6, 1) {
            case 1: socket.flush()
            case 2: await Task.yield()
            case 3: await pause(direction: 1)
            default: break
            }
        }
    }

    // MARK: - Reading

    private func read(_ socket: AsyncSocket, to end: Int) async throws {
        while received < end {
            let rest = end - received
            let count = size(rest, 0)
            switch pick(13, 0) {
            case 1: try check(await socket.read(maxLength: count) ?? Data(), atMost: count)
            case 2, 3:
                guard let line = incoming.lineLength(from: received, before: end) else { continue }
                try check(await socket.read(until: Data([Pattern.lineFeed])), exactly: line)
            case 4: try await peek(socket, min(count, 60_000))
            case 5: try await readUntilDeadline(socket, count)
            case 6: try await readWithTimeout(socket, count)
            case 7: try await cancel(socket, count)
            case 8: try await readSpan(socket)
            case 9: try await readTwice(socket, end)
            case 10: await pause(direction: 0)
            case 11: try await readLine(socket, end)
            case 12: try await readLines(socket, end)
            default: try check(await socket.read(exactly: count), exactly: count)
            }
        }
    }

    private func check(_ data: Data, exactly count: Int? = nil, atMost limit: Int = .max, isPeek: Bool = false) throws {
        note("read", data.count)
        if let count, data.count != count { complain("a read returns \(data.count) bytes, not \(count)") }
        if data.count > limit { complain("a read returns \(data.count) bytes, but at most \(limit) were requested") }
        // The end of the stream. Without a disturbance, it follows the last byte.
        if data.isEmpty {
            if !plan.mayFail { complain("the stream ends after \(received) of \(incoming.bytes.count) bytes") }
            throw CancellationError()
        }
        if let complaint = incoming.complaint(about: data, at: received) { complain(complaint) }
        if !isPeek { received += data.count }
    }

    private func peek(_ socket: AsyncSocket, _ count: Int) async throws {
        try check(await socket.peek(exactly: count), exactly: count, isPeek: true)
    }

    private func readSpan(_ socket: AsyncSocket) async throws {
        // Only in the last phase, because a span has no limit.
        guard isLastPhase else { return }
        let data = try await socket.withNextBytes { span in span.withUnsafeBytes { Data($0) } }
        try check(data ?? Data())
    }

    /// The bytes of an incomplete read stay available, and the deadline is kept.
    private func readUntilDeadline(_ socket: AsyncSocket, _ count: Int) async throws {
        let milliseconds = [0, 1, 10, 100][pick(4, 0)]
        let start = scenario.kernel.now
        do {
            try await withDeadline(.milliseconds(milliseconds)) {
                try check(await socket.read(exactly: count), exactly: count)
            }
        } catch let error as AsyncSocketError where error.code == .deadlineExceeded {
            checkTime(since: start, milliseconds, "a deadline")
        }
    }

    private func readWithTimeout(_ socket: AsyncSocket, _ count: Int) async throws {
        let milliseconds = [0, 1, 10, 100][pick(4, 0)]
        let start = scenario.kernel.now
        do {
            try check(await socket.read(exactly: count, timeout: .milliseconds(milliseconds)), exactly: count)
        } catch let error as AsyncSocketError where error.code == .readTimeout {
            checkTime(since: start, milliseconds, "a timeout")
        }
    }

    private func checkTime(since start: UInt64, _ milliseconds: Int, _ what: String) {
        note("expires", milliseconds)
        let elapsed = scenario.kernel.now - start
        let limit = UInt64(milliseconds) * 1_000_000
        if elapsed < limit { complain("\(what) of \(milliseconds) ms expires after \(elapsed) ns") }
        if elapsed > limit + 1_000_000 { complain("\(what) of \(milliseconds) ms expires after \(elapsed) ns") }
    }

    private func cancel(_ socket: AsyncSocket, _ count: Int) async throws {
        let reading = Task(executorPreference: socket.executor) { try await socket.read(exactly: count) }
        for _ in 0..<pick(4, 0) { await Task.yield() }
        if pick(2, 0) == 1 { await pause(direction: 0) }
        reading.cancel()
        switch await reading.result {
        case .success(let data): try check(data, exactly: count)
        case .failure(let error): if !(error is CancellationError) { throw error }
        }
    }

    /// Two reads at the same time: the second read gets the bytes after those of the first.
    private func readTwice(_ socket: AsyncSocket, _ end: Int) async throws {
        guard let length = incoming.lineLength(from: received, before: end), received + length < end else { return }
        let rest = end - received - length
        let count = pick(2, 0) == 0 ? min(rest, 1 + pick(3, 0)) : size(rest, 0)
        async let first = socket.read(until: Data([Pattern.lineFeed]))
        // Until the first read is queued, and some of its bytes may have arrived.
        await Task.yield()
        if pick(2, 0) == 1 { await pause(direction: 0) }
        async let second = socket.read(exactly: count)
        do {
            try check(await first, exactly: length)
        } catch {
            // Before an end, there may be bytes without a line feed, but enough for the second read.
            if let data = try? await second { try? check(data, exactly: count) }
            throw error
        }
        try check(await second, exactly: count)
    }

    /// Exits the loop early, or with the last whole line.
    private func readLines(_ socket: AsyncSocket, _ end: Int) async throws {
        var left = 1 + pick(6, 0)
        guard incoming.lineLength(from: received, before: end) != nil else { return }
        for try await line in socket.lines {
            try check(line, end)
            left -= 1
            if left == 0 || incoming.lineLength(from: received, before: end) == nil { return }
        }
        try check(Data())
    }

    private func readLine(_ socket: AsyncSocket, _ end: Int) async throws {
        guard incoming.lineLength(from: received, before: end) != nil else { return }
        guard let line = try await socket.readLine() else { return try check(Data()) }
        try check(line, end)
    }

    private func check(_ line: String, _ end: Int) throws {
        let length = incoming.lineLength(from: received, before: end) ?? 0
        if plan.mayFail, line.utf8.count + 1 < length {
            // The last bytes before the end form a line too.
            if !line.isEmpty { try check(Data(line.utf8)) }
            return
        }
        try check(Data((line + "\n").utf8), exactly: length)
    }

    /// Suspends the task, possibly for no time. A worker resumes it.
    private func pause(direction: UInt16) async {
        let nanoseconds = UInt64(pick(60, direction)) * 500_000
        await withUnsafeContinuation { continuation in
            scenario.kernel.after(nanoseconds) { continuation.resume() }
        }
    }

    // MARK: - The end

    func disturb(_ disturbance: Plan.Disturbance) {
        guard let socket else { return }
        switch disturbance {
        case .none, .reset: break
        case .disconnect: socket.disconnect()
        case .disconnectWithReset: socket.disconnectWithReset()
        case .disconnectAfterWriting: socket.disconnectAfterWriting()
        case .halfClose: socket.closeWriteStream()
        case .release: task?.cancel()
        }
    }

    func complaintAtEnd() -> String? {
        guard result != nil else {
            return "the task does not finish: \(received) of \(incoming.bytes.count) bytes were read, "
                + "\(written) of \(outgoing.bytes.count) written"
        }
        if plan.mayFail { return nil }
        return received == incoming.bytes.count ? nil : "\(incoming.bytes.count - received) bytes are missing"
    }

    func abandon() {
        var (socket, task) = (socket.take(), task.take())
        // May be the last references.
        Kernel.shared.serving {
            if socket != nil { socket = nil }
            if task != nil { task = nil }
        }
    }
}

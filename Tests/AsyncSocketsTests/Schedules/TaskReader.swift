import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// The reads of a task, compared with what its peer sends.
struct TaskReader: Sendable {
    enum Step: Sendable {
        case line
        /// Reads this number of lines in a loop, and then exits the loop.
        case lines(Int)
        /// Cancels the task of a loop after this number of lines.
        case cancelAfter(Int)
        /// Cancels a read of a line after this number of yields.
        case cancel(yields: Int)
        /// A deadline expires between two lines of a loop.
        case expire
        case exactly(Int)
        case throughLineFeed
        case some(Int)
        case span

        static func random(_ dice: inout SeededGenerator) -> Step {
            let count = Int.random(in: 1...12, using: &dice)
            return [
                .line, .line, .lines(count), .lines(count), .cancelAfter(count), .cancel(yields: count - 1), .expire,
                .exactly(count * count), .throughLineFeed, .some(count * 100), .span,
            ].randomElement(using: &dice) ?? .line
        }
    }

    private let socket: AsyncSocket
    /// The bytes of the peer that have not been read.
    private var rest: Data
    /// Whether the end of the stream follows.
    private let isLast: Bool
    private(set) var log: [String]

    init(_ socket: AsyncSocket, _ text: Data, isLast: Bool, log: [String] = []) {
        (self.socket, rest, self.isLast, self.log) = (socket, text, isLast, log)
    }

    // MARK: - The model

    private var lineCount: Int { rest.count { $0 == UInt8(ascii: "\n") } }

    private mutating func nextLine() -> String? {
        guard let end = rest.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        var line = rest[..<end]
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        rest = rest[(end + 1)...]
        return String(decoding: line, as: UTF8.self)
    }

    mutating func check(_ line: String?) throws {
        let expected = nextLine()
        guard line == expected else {
            throw Unexpected(description: "\(line.debugDescription) instead of \(expected.debugDescription)")
        }
    }

    private mutating func check(_ data: Data) throws {
        let expected = rest.prefix(data.count)
        guard !data.isEmpty, data == expected else {
            throw Unexpected(description: "\(data.debugDescription) instead of \(expected.debugDescription)")
        }
        rest = rest.dropFirst(data.count)
    }

    func checkEnd() throws {
        guard rest.isEmpty else { throw Unexpected(description: "\(rest.count) bytes are missing") }
    }

    // MARK: - Steps

    /// Skips steps that would read into the next phase.
    nonisolated(nonsending) mutating func perform(_ step: Step) async throws {
        guard isLast || !rest.isEmpty else { return }
        log.append("\(step)")
        switch step {
        case .line: try check(await socket.readLine())
        case .lines(let count): try await readLines(count)
        case .cancelAfter(let count): try await readLines(cancellingAfter: count)
        case .cancel(let yields): try await cancel(yields)
        case .expire: try await expire()
        case .exactly(let count) where count <= rest.count: try check(await socket.read(exactly: count))
        case .throughLineFeed where lineCount > 0: try check(await socket.read(until: Data("\n".utf8)))
        case .some(let count) where !rest.isEmpty: try check(await socket.read(maxLength: min(count, rest.count)) ?? Data())
        case .span where isLast && !rest.isEmpty:
            let bytes = try await socket.withNextBytes { span in span.withUnsafeBytes { Data($0) } }
            try check(bytes ?? Data())
        case .exactly, .throughLineFeed, .some, .span: log.removeLast()
        }
    }

    private nonisolated(nonsending) mutating func readLines(_ count: Int) async throws {
        var left = isLast ? count : min(count, lineCount)
        for try await line in socket.lines {
            try check(line)
            left -= 1
            if left == 0 { return }
        }
        try checkEnd()
    }

    private nonisolated(nonsending) mutating func readLines(cancellingAfter count: Int) async throws {
        guard count <= lineCount else { return }
        let (socket, seen) = (socket, Findings<String>())
        let reading = Task(executorPreference: socket.executor) {
            var left = count
            for try await line in socket.lines {
                seen.add(line)
                left -= 1
                if left == 0 { withUnsafeCurrentTask { $0?.cancel() } }
            }
        }
        let result = await reading.result
        guard case .failure(let error) = result, error is CancellationError, seen.all.count == count else {
            throw Unexpected(description: "\(result) after \(seen.all.count) of \(count) lines")
        }
        for line in seen.all { try check(line) }
    }

    private nonisolated(nonsending) mutating func cancel(_ yields: Int) async throws {
        let reading = Task(executorPreference: socket.executor) { [socket] in try await socket.readLine() }
        for _ in 0..<yields { await Task.yield() }
        reading.cancel()
        do { try check(await reading.value) } catch is CancellationError {}
    }

    private nonisolated(nonsending) mutating func expire() async throws {
        var seen: [String] = []
        do {
            try await withDeadline(.milliseconds(1)) {
                let end = ContinuousClock.now + .milliseconds(2)
                for try await line in socket.lines {
                    seen.append(line)
                    while ContinuousClock.now < end {}
                }
            }
            for line in seen { try check(line) }
            try checkEnd()
        } catch let error as AsyncSocketError where error.code == .deadlineExceeded {
            for line in seen { try check(line) }
            guard seen.count <= 1 else { throw Unexpected(description: "\(seen.count) lines after a deadline") }
        }
    }
}

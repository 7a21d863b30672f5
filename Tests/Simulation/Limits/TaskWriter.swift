internal import AsyncSockets
internal import Foundation

/// A task that writes with timeouts and deadlines.
final class TaskWriter: LimitTask, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    override func perform(_ socket: AsyncSocket) async throws {
        for number in 0..<3 + course.pick(8, 0) { try await write(number, socket) }
        try await socket.close()
    }

    override func check(_ error: any Error) {
        // If a collected write exceeds its timeout, the connection fails.
        let code = (error as? AsyncSocketError)?.code
        SlowReader.succeeded = []
        if !plan.isDisturbed, code != .writeTimeout, code != .deadlineExceeded { complain("\(error)") }
    }

    private func write(_ number: Int, _ socket: AsyncSocket) async throws {
        let data = Data(Message.bytes(number, [20, 1, 1_000, 6_000][course.pick(4, 0)]))
        let milliseconds = [100, 0, 1, 10][course.pick(4, 0)]
        let start = course.kernel.now
        let limit = Duration.milliseconds(milliseconds)
        let way = course.pick(4, 0)
        do {
            switch way {
            case 1: try await socket.write(data, timeout: limit)
            case 2: try await withDeadline(limit) { try await socket.write(data) }
            case 3: try await cancel(data, socket)
            default:
                try await socket.write(data)
                return note(number)
            }
            course.checkTime(since: start, UInt64(milliseconds) * 1_000_000, isExact: false, "a write")
            note(number)
        } catch let error as AsyncSocketError where [.writeTimeout, .deadlineExceeded].contains(error.code) {
            if way == 1 || way == 2 {
                course.checkTime(since: start, UInt64(milliseconds) * 1_000_000, isExact: socket.isConnected, "a write")
            } else if socket.isConnected {
                complain("a write without a limit fails: \(error)")
            }
            // An earlier write, which was collected, may have exceeded its limit.
            guard socket.isConnected else { throw error }
        } catch is CancellationError {}
        if course.pick(3, 0) == 1 { await course.suspend(UInt64(course.pick(30, 0)) * 1_000_000) }
    }

    private func note(_ number: Int) { SlowReader.succeeded.insert(number) }

    private func cancel(_ data: Data, _ socket: AsyncSocket) async throws {
        let writing = Task(executorPreference: socket.executor) { try await socket.write(data) }
        for _ in 0..<course.pick(4, 0) { await Task.yield() }
        writing.cancel()
        try await writing.value
    }
}

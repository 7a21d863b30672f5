// Article: deadline
import AsyncSockets

/// Reads the head of a request, which must be complete within ten seconds.
func readHead(of socket: AsyncSocket) async throws -> [String] {
    try await withDeadline(.seconds(10)) {
        var lines: [String] = []
        while lines.count < 100, let line = try await socket.readLine(maxLength: 8_192), !line.isEmpty {
            lines.append(line)
        }
        return lines
    }
}
// Article: end

// Article: race
/// Returns the next line, or nil if `stopped` returns first. A partially received line stays in the buffer
/// for the next read.
func nextLine(of socket: AsyncSocket, unless stopped: @escaping @Sendable () async -> Void) async throws -> String? {
    try await withThrowingTaskGroup(of: String?.self) { group in
        group.addTask { try await socket.readLine() }
        group.addTask {
            await stopped()
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
}
// Article: end

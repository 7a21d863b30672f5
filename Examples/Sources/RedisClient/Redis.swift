import AsyncSockets
import Foundation

/// A connection to a Redis server.
struct Redis {
    let socket: AsyncSocket

    /// Sends a command, and returns the reply.
    func send(_ command: String) async throws -> RedisValue {
        try await socket.write(.command(command.split(separator: " ")), as: RESP())
        return try await reply()
    }

    /// Sends all commands before it waits for the first reply. So they take one round trip, and not one each.
    func pipeline(_ commands: [String]) async throws -> [RedisValue] {
        var bytes = Data()
        for command in commands { try RESP().encode(.command(command.split(separator: " ")), into: &bytes) }
        // A child task writes while this one reads: a server whose replies no one takes may stop reading.
        async let written: Void = socket.write(bytes)
        var replies: [RedisValue] = []
        for _ in commands { replies.append(try await reply()) }
        try await written
        return replies
    }

    private func reply() async throws -> RedisValue {
        guard let value = try await socket.readFrame(RESP()) else { throw RedisError.ended }
        return value
    }
}

/// Why there is no reply.
enum RedisError: Error {
    case ended
}

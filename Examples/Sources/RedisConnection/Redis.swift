package import AsyncSockets
import Foundation

/// A connection to a Redis server.
package struct Redis {
    private let socket: AsyncSocket

    package init(socket: AsyncSocket) {
        self.socket = socket
    }

    /// Sends a command and returns the reply.
    package func send(_ command: String) async throws -> RedisValue {
        try await socket.write(.command(command.split(separator: " ")), as: RESP())
        return try await reply()
    }

    /// Sends all commands before waiting for the first reply, so that they need one round trip in total.
    package func pipeline(_ commands: [String]) async throws -> [RedisValue] {
        var bytes = Data()
        for command in commands { try RESP().encode(.command(command.split(separator: " ")), into: &bytes) }
        // Write in a child task while reading replies, because the server may stop reading if its replies are
        // not read.
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

/// The connection ended before the reply.
package enum RedisError: Error {
    case ended
}

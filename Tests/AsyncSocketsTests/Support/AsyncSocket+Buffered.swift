import SocketBuffers
import SocketTestSupport

@testable import AsyncSockets

extension AsyncSocket {
    /// Waits until the socket holds `count` bytes that no read has taken.
    func hasBuffered(_ count: Int) async throws {
        try await eventually("\(count) bytes are buffered") {
            // The buffer belongs to the turn.
            guard let connection, connection.turn.enterIfFree() else { return false }
            defer { connection.turn.leaveOrDrain(connection) }
            return connection.reads.preBuffer.count == count
        }
    }
}

import SocketBuffers
import SocketTestSupport

@testable import AsyncSockets

extension AsyncSocket {
    /// Waits until the socket has buffered `count` unread bytes.
    func hasBuffered(_ count: Int) async throws {
        try await turn("\(count) bytes are buffered") { $0.data.reads.preBuffer.count == count }
    }

    /// Waits until `condition` is true, checking it inside the connection's turn.
    func turn(_ what: String, _ condition: (StreamConnection) -> Bool) async throws {
        try await eventually(what) {
            guard let connection, connection.turn.enterIfFree() else { return false }
            defer { connection.turn.leaveOrDrain(connection) }
            return condition(connection)
        }
    }
}

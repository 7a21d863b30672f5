// Article: ahead
import AsyncSockets

/// Sends the numbers from 1 to `count`, one in a line.
func sendNumbers(upTo count: Int, on socket: AsyncSocket) async throws {
    socket.writeHighWaterMark = 256 * 1024
    for number in 1...count { try await socket.write("\(number)\n") }
}
// Article: end

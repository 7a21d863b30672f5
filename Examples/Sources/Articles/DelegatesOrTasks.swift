// Article: tasks
import AsyncSockets

/// Echoes each client's lines with line numbers.
func numberLines(onPort port: UInt16, tls: TLSServerSettings) async throws {
    let listener = try SocketListener(port: port, tls: tls)
    try await listener.run { socket in
        var number = 0
        for try await line in socket.lines {
            number += 1
            try await socket.write("\(number): \(line)\r\n", timeout: .seconds(30))
        }
    }
}
// Article: end

// Article: greeting
import AsyncSockets

@main
struct Greeting {
    static func main() async {
        do {
            print(try await greeting(of: "imap.example.org", port: 993) ?? "The server said nothing.")
        } catch {
            print("failed: \(error)")
        }
    }

    /// Connects over TLS and returns the first line that the server sends, or nil if it closes the connection
    /// instead.
    static func greeting(of host: String, port: UInt16) async throws -> String? {
        try await AsyncSocket.withConnection(to: host, port: port, tls: .client) { socket in
            try await socket.readLine(timeout: .seconds(10))
        }
    }
}
// Article: end

// Article: explanation
/// A message to show to the user.
func explanation(of error: any Error) -> String {
    guard let error = error as? AsyncSocketError else { return "\(error)" }
    switch error.code {
    case .hostNotFound: return "The host was not found."
    case .connectFailed, .connectTimeout: return "Cannot connect to the host."
    case .tls where error.fault == .certificate: return "The host's identity could not be verified: \(error.message)"
    default: return error.description
    }
}
// Article: end

// Article: tasks
/// Sends lines, and then closes this side of the connection.
func send(_ lines: AsyncStream<String>, over socket: AsyncSocket) async throws {
    for await line in lines { try await socket.writeLine(line) }
    socket.closeWriteStream()
}

/// Sends lines and prints the lines that arrive, until the peer closes its side.
func converse(sending lines: AsyncStream<String>, on socket: AsyncSocket) async throws {
    async let _: Void = send(lines, over: socket)
    for try await line in socket.lines { print(line) }
}
// Article: end

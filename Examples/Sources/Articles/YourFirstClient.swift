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

    /// The first line of a server that speaks first, over TLS; nil if it closes the connection instead.
    static func greeting(of host: String, port: UInt16) async throws -> String? {
        try await AsyncSocket.withConnection(to: host, port: port, tls: .client) { socket in
            try await socket.readLine(timeout: .seconds(10))
        }
    }
}
// Article: end

// Article: explanation
/// What to tell the user.
func explanation(of error: any Error) -> String {
    guard let error = error as? AsyncSocketError else { return "\(error)" }
    switch error.code {
    case .hostNotFound: return "There is no such host."
    case .connectFailed, .connectTimeout: return "The host does not answer."
    case .tls where error.fault == .certificate: return "The host cannot prove who it is: \(error.message)"
    default: return error.description
    }
}
// Article: end

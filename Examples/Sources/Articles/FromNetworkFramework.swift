// Article: client
import AsyncSockets

/// Sends one line and returns the response.
func ask(_ question: String, of host: String, port: UInt16) async throws -> String? {
    var settings = TLSSettings.client
    settings.applicationProtocols = ["question/1"]
    return try await AsyncSocket.withConnection(to: host, port: port, tls: settings) { socket in
        try await socket.write(question + "\r\n")
        return try await socket.readLine(timeout: .seconds(10))
    }
}
// Article: end

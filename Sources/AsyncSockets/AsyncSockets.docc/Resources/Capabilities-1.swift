import AsyncSockets

func capabilities(of host: String) async throws -> String? {
    try await AsyncSocket.withConnection(to: host, port: 143) { socket in
        try await socket.readLine()
    }
}

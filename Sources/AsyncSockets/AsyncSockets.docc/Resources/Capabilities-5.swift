import AsyncSockets

struct NoTLS: Error {}

func capabilities(of host: String) async throws -> String? {
    try await AsyncSocket.withConnection(to: host, port: 143) { socket in
        try await withDeadline(.seconds(20)) {
            _ = try await socket.readLine()
            try await socket.write("a STARTTLS\r\n")
            guard try await socket.readLine()?.hasPrefix("a OK") == true else { throw NoTLS() }
            try await socket.startTLS(settings: .client)
            try await socket.write("b CAPABILITY\r\n")
            return try await socket.readLine()
        }
    }
}

import AsyncSockets

func serveChat(onPort port: UInt16) async throws {
    let listener = try SocketListener(port: port, maximumConnections: 1_000)
    try await listener.run { socket in
        for try await line in socket.lines(maxLength: 1_024) {
            try await socket.write("\(line)\r\n", timeout: .seconds(30))
        }
    }
}

import AsyncSockets

/// Replies to messages.
struct Server {
    /// How long a client may be silent. A client that is still connected would have sent a ping.
    let patience: Duration

    func run(onPort port: UInt16) async throws {
        let listener = try SocketListener(port: port, interface: "localhost", maximumConnections: 1_000)
        log("listening on port \(listener.localPort)")
        try await listener.run { socket in
            while let message = try await socket.readFrame(JSONFraming(), timeout: patience) {
                switch message {
                case .add(let numbers): try await socket.write(.sum(numbers.reduce(0, &+)), as: JSONFraming())
                case .ping: try await socket.write(.pong, as: JSONFraming())
                case .sum, .pong: break
                }
            }
        }
    }
}

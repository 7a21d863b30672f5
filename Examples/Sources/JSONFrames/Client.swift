import AsyncSockets

/// A client that detects a lost connection and reconnects.
struct Client {
    let port: UInt16
    /// How long to wait for a message before sending a ping.
    let heartbeat: Duration

    /// Connects, and reconnects whenever the connection ends, until the task is cancelled.
    func run() async throws {
        var pause = Backoff()
        while true {
            do {
                try await AsyncSocket.withConnection(to: "localhost", port: port, timeout: .seconds(5)) { socket in
                    try await socket.write(.add([1, 2, 3]), as: JSONFraming())
                    while let message = try await nextMessage(from: socket) {
                        pause = Backoff()  // the connection works, so reset the backoff
                        log("\(message)")
                    }
                    log("the server closed the connection")
                }
            } catch let error as AsyncSocketError {
                log("connection failed: \(error.code)")
            }
            try await pause.wait()
        }
    }

    // Article: heartbeat
    /// Returns the next message, or nil after an orderly close. A read that times out loses no data and keeps
    /// the connection open.
    private func nextMessage(from socket: AsyncSocket) async throws -> Message? {
        do {
            return try await socket.readFrame(JSONFraming(), timeout: heartbeat)
        } catch let error as AsyncSocketError where error.code == .readTimeout {
            try await socket.write(.ping, as: JSONFraming(), timeout: heartbeat)
            return try await socket.readFrame(JSONFraming(), timeout: heartbeat)  // no reply: the connection is dead
        }
    }
    // Article: end
}

/// Exponential backoff between connection attempts.
struct Backoff {
    private var longest = 100  // milliseconds

    /// The delay is random, so that clients do not all reconnect at once after an outage.
    mutating func wait() async throws {
        let pause = Duration.milliseconds(Int.random(in: longest / 2...longest))
        longest = min(longest * 2, 30_000)
        log("the next attempt is in \(pause)")
        try await Task.sleep(for: pause)
    }
}

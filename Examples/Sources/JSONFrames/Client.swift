import AsyncSockets

/// A client that stays connected: it notices when the server is gone, and comes back to it.
struct Client {
    let port: UInt16
    /// After so long without a message it asks the server for a sign of life.
    let heartbeat: Duration

    /// Connects again and again, until the task is cancelled.
    func run() async throws {
        var pause = Backoff()
        while true {
            do {
                try await AsyncSocket.withConnection(to: "localhost", port: port, timeout: .seconds(5)) { socket in
                    try await socket.write(.add([1, 2, 3]), as: JSONFraming())
                    while let message = try await nextMessage(from: socket) {
                        pause = Backoff()  // the server is well
                        log("\(message)")
                    }
                    log("the server has ended the connection")
                }
            } catch let error as AsyncSocketError {
                log("no connection: \(error.code)")
            }
            try await pause.wait()
        }
    }

    // Article: heartbeat
    /// The next message; nil after an orderly end. A read that takes too long loses nothing, and leaves the
    /// connection alone.
    private func nextMessage(from socket: AsyncSocket) async throws -> Message? {
        do {
            return try await socket.readFrame(JSONFraming(), timeout: heartbeat)
        } catch let error as AsyncSocketError where error.code == .readTimeout {
            try await socket.write(.ping, as: JSONFraming(), timeout: heartbeat)
            return try await socket.readFrame(JSONFraming(), timeout: heartbeat)  // too late again: it is gone
        }
    }
    // Article: end
}

/// Pauses between attempts, each up to twice as long as the one before.
struct Backoff {
    private var longest = 100  // milliseconds

    /// Waits for a random time, so that the clients of a server that was away do not all come at once.
    mutating func wait() async throws {
        let pause = Duration.milliseconds(Int.random(in: longest / 2...longest))
        longest = min(longest * 2, 30_000)
        log("the next attempt is in \(pause)")
        try await Task.sleep(for: pause)
    }
}

import AsyncSockets
import SocketTestSupport
import Testing

/// Ports of 127.0.0.1.
enum Loopback {
    /// Returns a port that was unused a moment ago, below the range that the kernel assigns.
    static func freePort() throws -> UInt16 {
        for _ in 0..<100 {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            let port = UInt16.random(in: 10_240..<32_000)
            guard (try? socket.accept(onInterface: "127.0.0.1", port: port)) != nil else { continue }
            socket.disconnect()
            return port
        }
        throw Unexpected(description: "no port is free")
    }

    /// Connects repeatedly until `program` is listening. The timer between attempts is a read that times out
    /// on one of our own connections.
    static func connect(to port: UInt16, of program: Program) async throws -> (AsyncSocket, Recorder) {
        let clock = try await Link.make()
        for _ in 0..<200 {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
            if case .connected = await recorder.next() { return (socket, recorder) }
            try await clock.tick(seconds: 0.1)
        }
        throw Unexpected(description: "\(program.name) does not listen: \(program.printed)")
    }
}

extension Link {
    /// Waits for the timeout of a read that never completes.
    func tick(seconds: Double) async throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await recorder.connected()
        socket.readData(withTimeout: seconds, tag: 0)
        _ = try await recorder.disconnected()
    }
}

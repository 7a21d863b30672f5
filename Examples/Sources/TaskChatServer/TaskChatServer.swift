// A chat server for plaintext and TLS connections. Each connection is a task, and the room is an actor.
// SIGTERM shuts it down gracefully.
//
//     swift run --package-path Examples task-chat-server 4434 4435
//
// Run it in a folder with server.pem and server.key (the server's certificate and key). Then connect, and
// enter your name first:
//
//     nc localhost 4434
//     openssl s_client -connect localhost:4435 -CAfile ca.pem -quiet

import AsyncSockets
import Foundation

@main
struct TaskChatServer {
    let room = Room()

    /// Serves one connection. This task writes the lines from the room, and a child task reads.
    func serve(_ socket: AsyncSocket) async throws {
        try await socket.write("*** your name?\n")
        guard let name = try await socket.readLine(maxLength: 100, timeout: .seconds(60)) else { return }
        guard !name.isEmpty, let outbox = await room.join(name) else { return try await socket.write("*** not this one\n") }
        log("\(name) joined")
        async let _ = listen(to: name, on: socket)
        for await line in outbox { try await socket.write("\(line)\n", timeout: .seconds(30)) }
    }

    /// Reads until the member disconnects or the connection's task ends.
    private func listen(to name: String, on socket: AsyncSocket) async {
        var reason = ""
        do {
            for try await line in socket.lines(maxLength: 1_024) { await room.say("\(name): \(line)", from: name) }
        } catch {
            if let error = error as? AsyncSocketError { reason = ": \(error.code)" }
        }
        log("\(name) left\(reason)")
        await room.leave(name)
    }

    func run(onPort port: UInt16, securePort: UInt16) async throws {
        let identity = try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key")
        let listeners = [
            try SocketListener(port: port, maximumConnections: 1_000),
            try SocketListener(port: securePort, tls: .server(identity: identity), maximumConnections: 1_000),
        ]
        log("listening on ports \(listeners[0].localPort) and \(listeners[1].localPort)")
        // Each call returns when its last connection has closed.
        try await withThrowingDiscardingTaskGroup { group in
            for listener in listeners { group.addTask { try await serve(listener) } }
        }
        log("done")
    }

    // Article: listener
    /// Each member's task also waits on the room, so the room must be notified of the signal.
    private func serve(_ listener: SocketListener) async throws {
        try await listener.run(
            untilSignals: [SIGTERM], closeTimeout: .seconds(5),
            onError: { error, _ in log("a connection failed: \(error)") },
            onShutdown: { await room.close() }
        ) { socket in
            try await serve(socket)
        }
    }
    // Article: end

    static func main() async {
        let ports = CommandLine.arguments.dropFirst().compactMap(UInt16.init)
        do {
            try await TaskChatServer().run(onPort: ports.first ?? 4434, securePort: ports.dropFirst().first ?? 4435)
        } catch {
            log("cannot serve: \(error)")
            exit(EXIT_FAILURE)
        }
    }
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

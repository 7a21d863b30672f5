// Article: leaving
import AsyncSockets
import Foundation

/// An expensive computation.
func digest(of request: Data) -> String { String(request.reduce(UInt64(5381)) { $0 &* 33 &+ UInt64($1) }) }

/// Runs the computation on Swift's global executor and the I/O on the event loop.
func serveDigests(_ listener: SocketListener) async throws {
    try await listener.run { socket in
        for try await request in socket.frames(LengthPrefixed<UInt32>()) {
            let answer = await withTaskExecutorPreference(globalConcurrentExecutor) { await computed(request) }
            try await socket.write(answer + "\n")
        }
    }
}

@concurrent
func computed(_ request: Data) async -> String { digest(of: request) }
// Article: end

// Article: away
/// Runs every connection's task on Swift's global executor.
func serveDigestsOfLines(_ listener: SocketListener) async throws {
    try await listener.run(executor: .custom(globalConcurrentExecutor)) { socket in
        for try await line in socket.lines { try await socket.write(digest(of: Data(line.utf8)) + "\n") }
    }
}
// Article: end

// Article: there
/// Reads and writes concurrently, both on the socket's event loop.
func ping(_ socket: AsyncSocket) async throws {
    let reader = Task(executorPreference: socket.executor) {
        for try await line in socket.lines { print(line) }
    }
    try await socket.write("PING\r\n")
    try await reader.value
}
// Article: end

// Article: shutdown
import AsyncSockets
import Foundation

/// Serves until SIGTERM or SIGINT is received, then gives open connections ten seconds to finish.
func serveUntilTerminated(_ listener: SocketListener) async throws {
    try await listener.run(untilSignals: [SIGTERM, SIGINT], closeTimeout: .seconds(10)) { socket in
        for try await bytes in socket.chunks { try await socket.write(bytes) }
    }
}
// Article: end

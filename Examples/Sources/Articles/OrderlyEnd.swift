// Article: shutdown
import AsyncSockets
import Dispatch
import Foundation

/// Serves until SIGTERM comes. Then connections have ten seconds.
func serveUntilTerminated(_ listener: SocketListener) async throws {
    let terminated = DispatchSource.makeSignalSource(signal: SIGTERM)
    terminated.setEventHandler { @Sendable in listener.beginShutdown(within: .seconds(10)) }
    terminated.activate()
    defer { terminated.cancel() }
    try await listener.run { socket in
        for try await bytes in socket.chunks { try await socket.write(bytes) }
    }
}
// Article: end

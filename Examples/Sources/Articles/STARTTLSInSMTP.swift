import AsyncSockets

// Article: server
/// Requires STARTTLS, then echoes lines over the encrypted connection.
func serve(_ socket: AsyncSocket, identity: TLSIdentity) async throws {
    try await socket.writeLine("220 ready")
    for try await line in socket.lines(maxLength: 1_000, idleTimeout: .seconds(60)) {
        switch (line, socket.isSecure) {
        case (_, true): try await socket.writeLine(line)
        case ("STARTTLS", false):
            try await socket.writeLine("220 go ahead")
            try await socket.startTLS(settings: .server(identity: identity))
        default: try await socket.writeLine("530 STARTTLS first")
        }
    }
}
// Article: end

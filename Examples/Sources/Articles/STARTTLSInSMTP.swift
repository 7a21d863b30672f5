import AsyncSockets

// Article: server
/// Offers STARTTLS, and echoes lines once the connection is secure.
func serve(_ socket: AsyncSocket, identity: TLSIdentity) async throws {
    try await socket.write("220 ready\r\n")
    while let command = try await socket.readLine(maxLength: 1_000, timeout: .seconds(60)) {
        guard command == "STARTTLS" else {
            try await socket.write("530 STARTTLS first\r\n")
            continue
        }
        try await socket.write("220 go ahead\r\n")
        try await socket.startTLS(settings: .server(identity: identity))
        for try await line in socket.lines { try await socket.write(line + "\r\n") }
        return
    }
}
// Article: end

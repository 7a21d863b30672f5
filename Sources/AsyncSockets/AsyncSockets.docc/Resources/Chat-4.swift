import AsyncSockets
import Glibc

func serveChat(onPort port: UInt16, identity: TLSIdentity) async throws {
    let room = Room()
    let listener = try SocketListener(port: port, tls: .server(identity: identity), maximumConnections: 1_000)
    try await listener.run(
        untilSignals: [SIGTERM], closeTimeout: .seconds(5), onShutdown: { await room.close() }
    ) { socket in
        let (number, lines) = await room.join()
        async let _ = listen(to: socket, number, in: room)
        for await line in lines {
            try await socket.write("\(line)\r\n", timeout: .seconds(30))
        }
    }
}

/// Reads until the member disconnects or the connection's task ends.
func listen(to socket: AsyncSocket, _ number: Int, in room: Room) async {
    do {
        for try await line in socket.lines(maxLength: 1_024) { await room.say(line, from: number) }
    } catch {
        await room.say("left: \(error)", from: number)
    }
    await room.leave(number)
}

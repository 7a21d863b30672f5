import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// While half a message of the peer is missing, OpenSSL encrypts nothing.
@Suite(.timeLimit(.minutes(20))) struct HeldUpWriteTests {
    private var client: TLSSettings
    private var server: TLSSettings

    /// One certificate: the connections send the same number of bytes.
    init() throws {
        (client, server) = try TestCertificates.mutual(.onRequest)
        client.allowsPostHandshakeAuthentication = true
        client.resumption = .none
        server.resumption = .none
        // A wait in vain ends.
        server.handshakeTimeout = .seconds(10)
    }

    /// A server that asks for a certificate, and a relay between it and its client.
    private func connected(
        fromClient: [Tampering] = []
    ) async throws -> (client: AsyncSocket, server: AsyncSocket, relay: TamperingRelay) {
        let listener = try RawSocket.listening()
        let relay = try TamperingRelay(toPort: listener.localPort, fromClient: fromClient)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: relay.port)
        let server = try AsyncSocket(adopting: listener.accepted().duplicate())
        let atServer = Task.immediate { [atServer = self.server] in try await server.startTLS(settings: atServer) }
        try await client.startTLS(settings: self.client)
        _ = try await atServer.value
        return (client, server, relay)
    }

    /// How many bytes of the client come before its answer, with the answer's first message: the certificate.
    private func countThroughCertificate() async throws -> Int {
        let (client, server, relay) = try await connected()
        let count = relay.original.fromClient.count
        async let atClient = client.readLine(timeout: .seconds(300))
        _ = try await server.requestClientCertificate(isRequired: true)
        try await server.write("\n", timeout: .seconds(300))
        _ = try await atClient
        for socket in [client, server] { socket.disconnect() }
        // Each message is a record: type, version and length, and so many bytes (RFC 8446, 5.1).
        let header = relay.original.fromClient[count..<count + 5]
        #expect(header.prefix(3) == [23, 3, 3])
        return count + 5 + (Int(header[count + 3]) << 8 | Int(header[count + 4]))
    }

    /// The writes wait for the rest of the answer, and need no event of their own behind it.
    @Test func whatHalfAnAnswerHasHeldUpFollowsTheOtherHalf() async throws {
        let mayGoOn = try TestSignal()
        let count = try await countThroughCertificate()
        let (client, server, relay) = try await connected(fromClient: [.hold(at: count, until: mayGoOn)])
        let request = Task.immediate { try await server.requestClientCertificate(isRequired: true) }
        // The client reads what the server asks.
        let answer = Task.immediate { try await client.readLine(timeout: .seconds(300)) }
        try await eventually("half of it has been passed on") { relay.delivered.fromClient.count == count }
        var writes: [Task<Void, any Error>] = []
        try await eventually("a write waits") {
            writes.append(Task.immediate { try await server.write("x", timeout: .seconds(300)) })
            return server.writeProgress != nil
        }
        let connection = try #require(server.connection)
        try await eventually("the turn is free") { connection.turn.enterIfFree() }
        // So the pump looks at the writes again when it has read.
        let isHeldUp = if case .connected(let channel) = connection.phase { channel.isHeldUp } else { false }
        connection.turn.leaveOrDrain(connection)
        #expect(isHeldUp)
        mayGoOn.fire()
        for write in writes { try await write.value }
        #expect(try await request.value.peerCertificates.first?.commonName == "alice")
        try await server.write("\n", timeout: .seconds(300))
        #expect(try await answer.value == String(repeating: "x", count: writes.count))
        for socket in [client, server] { socket.disconnect() }
    }
}

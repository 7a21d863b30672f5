import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// While half a message of the peer is missing, OpenSSL encrypts nothing.
@Suite(.timeLimit(.minutes(20))) struct HeldUpWriteTests {
    /// A server that asks for a certificate, and a relay between it and its client.
    private func connected(
        fromClient: [Tampering] = []
    ) async throws -> (client: AsyncSocket, server: AsyncSocket, relay: TamperingRelay) {
        var (settings, serverSettings) = try TestCertificates.mutual(.onRequest)
        settings.allowsPostHandshakeAuthentication = true
        // Each connection sends as many bytes as the one before.
        settings.resumption = .none
        serverSettings.resumption = .none
        let listener = try RawSocket.listening()
        let relay = try TamperingRelay(toPort: listener.localPort, fromClient: fromClient)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: relay.port)
        let server = try AsyncSocket(adopting: listener.accepted().duplicate())
        let atServer = Task.immediate { [serverSettings] in try await server.startTLS(settings: serverSettings) }
        try await client.startTLS(settings: settings)
        _ = try await atServer.value
        return (client, server, relay)
    }

    /// How many bytes of the client come before its answer, with the answer's first message: the certificate.
    private func countThroughCertificate() async throws -> Int {
        let (client, server, relay) = try await connected()
        let count = relay.original.fromClient.count
        async let atClient = client.readLine()
        _ = try await server.requestClientCertificate(isRequired: true)
        try await server.write("\n")
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
        let answer = Task.immediate { try await client.readLine(timeout: .seconds(10)) }
        try await eventually("half of it has been passed on") { relay.delivered.fromClient.count == count }
        var writes: [Task<Void, any Error>] = []
        try await eventually("a write waits") {
            writes.append(Task.immediate { try await server.write("x", timeout: .seconds(10)) })
            return server.writeProgress != nil
        }
        mayGoOn.fire()
        for write in writes { try await write.value }
        #expect(try await request.value.peerCertificates.first?.commonName == "alice")
        try await server.write("\n")
        #expect(try await answer.value == String(repeating: "x", count: writes.count))
        for socket in [client, server] { socket.disconnect() }
    }
}

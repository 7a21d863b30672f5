import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketTLS

/// While part of a message from the peer is missing, OpenSSL does not encrypt anything.
@Suite(.timeLimit(.patient)) struct HeldUpWriteTests {
    private var client: TLSClientSettings
    private var server: TLSServerSettings

    /// Share one certificate, so that all connections send the same number of bytes.
    init() throws {
        (client, server) = try TestCertificates.mutual(.certificatesOnRequest())
        client.allowsPostHandshakeAuthentication = true
        client.resumption = .none
        // Limits the wait if the test fails.
        server.handshakeTimeout = .patient
    }

    /// A server that requests a certificate, with a relay between it and its client.
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

    /// Returns how many bytes the client sends up to and including its certificate, which is the first
    /// message of its response.
    private func countThroughCertificate() async throws -> Int {
        let (client, server, relay) = try await connected()
        let count = relay.original.fromClient.count
        async let atClient = client.readLine(timeout: .patient)
        _ = try await server.requestClientCertificate(isRequired: true)
        try await server.write("\n", timeout: .patient)
        _ = try await atClient
        for socket in [client, server] { socket.disconnect() }
        // Each message is a record: type, version, length, and that many bytes (RFC 8446, 5.1).
        let header = relay.original.fromClient[count..<count + 5]
        #expect(header.prefix(3) == [23, 3, 3])
        return count + 5 + (Int(header[count + 3]) << 8 | Int(header[count + 4]))
    }

    /// The writes wait for the rest of the response, and continue after it without an event of their own.
    @Test func whatHalfAnAnswerHasHeldUpFollowsTheOtherHalf() async throws {
        let mayGoOn = try TestSignal()
        let count = try await countThroughCertificate()
        let (client, server, relay) = try await connected(fromClient: [.hold(at: count, until: mayGoOn)])
        let request = Task.immediate { try await server.requestClientCertificate(isRequired: true) }
        // The client processes the server's request.
        let answer = Task.immediate { try await client.readLine(timeout: .patient) }
        try await eventually("half of it has been passed on") { relay.delivered.fromClient.count == count }
        var writes: [Task<Void, any Error>] = []
        try await eventually("a write waits") {
            try #require(server.isConnected)
            writes.append(Task.immediate { try await server.write("x", timeout: .patient) })
            return server.writeProgress != nil
        }
        let connection = try #require(server.connection)
        try await eventually("the turn is free") { connection.turn.enterIfFree() }
        // So the pump tries the writes again after reading.
        let isHeldUp = connection.data.channel?.isHeldUp == true
        connection.turn.leaveOrDrain(connection)
        #expect(isHeldUp)
        mayGoOn.fire()
        for write in writes { try await write.value }
        #expect(try await request.value.peerCertificates.first?.commonName == "alice")
        try await server.write("\n", timeout: .patient)
        #expect(try await answer.value == String(repeating: "x", count: writes.count))
        for socket in [client, server] { socket.disconnect() }
    }

    /// A peer may split a message into several records. Only the rest of a ticket is in transit.
    @Test func whatHalfATicketHasHeldUpFollowsTheOtherHalf() async throws {
        var (atClient, atServer) = try TestCertificates.mutual()
        (atClient, atServer) = (atClient.only(.tls13), atServer.only(.tls13))
        atServer.clients = .certificates(.required)
        atServer.sessionTickets = .issued(1)
        // The handshake timer may also fire after the handshake. Nothing may cause the pump to run again.
        atClient.handshakeTimeout = .seconds(3600)
        let (server, serverWire) = try ChannelEnd.pair()
        let (clientWire, own) = try RawSocket.pair()
        let client = try AsyncSocket(adopting: own.duplicate())
        let handshake = Task.immediate { [atClient] in try await client.startTLS(settings: atClient) }
        try server.beginTLS(atServer)
        try server.sendSmallRecords()
        try await eventually("the handshake is complete") {
            if clientWire.hasInput { try serverWire.send(clientWire.receive()) }
            server.channel.expectBytes()
            defer { if serverWire.hasInput { try? clientWire.send(serverWire.receive()) } }
            return server.handshake().isComplete
        }
        _ = try await handshake.value
        server.channel.sendTickets()
        let ticket = try serverWire.receive()
        let half = 5 + (Int(ticket[3]) << 8 | Int(ticket[4]))
        try #require(half < ticket.count)
        try clientWire.send(ticket.prefix(half))
        var writes: [Task<Void, any Error>] = []
        try await eventually("a write waits") {
            try #require(client.isConnected)
            // Until the client has read the first half, its writes are sent. Receive them, so that no write
            // waits because the buffer is full.
            if clientWire.hasInput { _ = try clientWire.receive() }
            writes.append(Task.immediate { try await client.write("x", timeout: .patient) })
            return client.writeProgress != nil
        }
        try clientWire.send(ticket.dropFirst(half))
        for write in writes { try await write.value }
        client.disconnect()
    }
}

extension ChannelEnd {
    /// Makes OpenSSL split its messages into records of 512 bytes (`SSL_CTRL_SET_MAX_SEND_FRAGMENT`).
    fileprivate func sendSmallRecords() throws {
        typealias Control = @convention(c) (OpaquePointer, Int32, Int, UnsafeMutableRawPointer?) -> Int
        guard case .tls(let engine) = channel.layer, let control = dlsym(nil, "SSL_ctrl") else {
            throw Unexpected(description: "no SSL_ctrl")
        }
        #expect(unsafeBitCast(control, to: Control.self)(engine.ssl, 52, 512, nil) == 1)
    }
}

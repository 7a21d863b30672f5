import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// TLS messages that do not fit into the kernel's buffer: flights, tickets, records, alerts and close_notify.
@Suite(.timeLimit(.patient)) struct FullKernelTLSTests {
    /// A client and a server. Data moves only when the test carries it.
    private struct Wire: Sendable {
        let client: AsyncSocket
        let server: AsyncSocket
        let atClient: FullKernel
        let atServer: FullKernel

        init() throws {
            let (one, other) = (try FullKernel.make(.task), try FullKernel.make(.task))
            (atClient, client, atServer, server) = (one.0, one.1.socket, other.0, other.1.socket)
        }

        static func secure(_ version: TLSProtocolVersion) async throws -> Wire {
            let wire = try Wire()
            let (client, server) = wire.startTLS(try TestCertificates.client().only(version), try TestCertificates.server())
            try await wire.areSecure(client, server)
            return wire
        }

        typealias Handshake = Task<TLSSession, any Error>

        func startTLS(
            _ clientSettings: TLSClientSettings, _ serverSettings: TLSServerSettings
        ) -> (client: Handshake, server: Handshake) {
            (
                Task { [client] in try await client.startTLS(settings: clientSettings) },
                Task { [server] in try await server.startTLS(settings: serverSettings) }
            )
        }

        func areSecure(_ client: Handshake, _ server: Handshake) async throws {
            try await carrying("both are secure") { _ = (try await client.value, try await server.value) }
        }

        // MARK: - Carrying

        @discardableResult func carryUp() -> Int { Self.carry(from: atClient.peer, to: atServer.peer) }
        @discardableResult func carryDown() -> Int { Self.carry(from: atServer.peer, to: atClient.peer) }

        /// Carries the available bytes, or the end. Returns the number of bytes.
        /// The number of bytes that `carrying` has carried to the client.
        let byteCountDown = Locked(0)

        private static func carry(from source: RawSocket, to target: RawSocket) -> Int {
            var count = 0
            while source.hasInput {
                guard let bytes = try? source.receive(), !bytes.isEmpty else {
                    target.finish()
                    break
                }
                count += bytes.count
                // The target may be closed.
                try? target.send(bytes)
            }
            return count
        }

        /// Carries in both directions until the operation is complete.
        @discardableResult func carrying<Value: Sendable>(
            _ what: String, _ operation: @escaping @Sendable () async throws -> Value
        ) async throws -> Value {
            let isComplete = Locked(false)
            let task = Task {
                defer { isComplete.withLock { $0 = true } }
                return try await operation()
            }
            try await eventually(what) {
                carryUp()
                byteCountDown.withLock { $0 += carryDown() }
                return isComplete.withLock { $0 }
            }
            return try await task.value
        }
    }

    private func waits(_ socket: AsyncSocket) -> Bool {
        guard let connection = socket.connection, connection.turn.enterIfFree() else { return false }
        defer { connection.turn.leaveOrDrain(connection) }
        return connection.data.channel?.hasUnsentBytes == true
    }

    /// Returns when the server has sent the first bytes of its reply.
    private func carryClientHello(over wire: Wire) async throws {
        try await eventually("the ClientHello has been carried") {
            wire.carryUp()
            return wire.atServer.peer.hasInput
        }
    }

    private func exchange(over wire: Wire) async throws {
        try await wire.carrying("a message has arrived") {
            try await wire.client.write("ping\n")
            #expect(try await wire.server.readLine() == "ping")
            try await wire.server.write("pong\n")
            #expect(try await wire.client.readLine() == "pong")
        }
    }

    // MARK: - Handshakes

    @Test(arguments: TLSProtocolVersion.tested, Shortage.allCases)
    func aServersFlightThatWaitsCompletesTheHandshake(_ version: TLSProtocolVersion, _ shortage: Shortage) async throws {
        let wire = try Wire()
        let count = try await wire.atServer.exhaust(wire.server, shortage)
        let (client, server) = wire.startTLS(try TestCertificates.client().only(version), try TestCertificates.server())
        try await eventually("the server's flight is pending") {
            // After `noMemory`, the server tries again automatically.
            wire.carryUp() > 0 && shortage == .noMemory || waits(wire.server)
        }
        try await wire.atServer.drain(count)
        try await wire.areSecure(client, server)
        try await exchange(over: wire)
    }

    /// With a certificate, so that the flight is long.
    @Test(arguments: TLSProtocolVersion.tested, Shortage.allCases)
    func aClientsLastFlightThatWaitsCompletesTheHandshake(_ version: TLSProtocolVersion, _ shortage: Shortage) async throws {
        let wire = try Wire()
        let settings = try TestCertificates.mutual()
        let (client, server) = wire.startTLS(settings.client.only(version), settings.server)
        try await carryClientHello(over: wire)
        let count = try await wire.atClient.exhaust(wire.client, shortage)
        try await eventually("the client's flight is pending") {
            wire.carryDown() > 0 && shortage == .noMemory || waits(wire.client)
        }
        #expect(!wire.server.isSecure)
        try await wire.atClient.drain(count)
        try await wire.areSecure(client, server)
        #expect(try await server.value.peerCertificates.first?.commonName == "alice")
        try await exchange(over: wire)
    }

    /// The tickets stay in the process, and so does the data after them.
    @Test(arguments: TLSProtocolVersion.tested, Shortage.allCases)
    func ticketsThatWaitArriveWithTheData(_ version: TLSProtocolVersion, _ shortage: Shortage) async throws {
        let wire = try Wire()
        let atClient = try TestCertificates.client().only(version)
        var atServer = try TestCertificates.server()
        atServer.sessionTickets = .issued(2)
        let (client, server) = wire.startTLS(atClient, atServer)
        try await carryClientHello(over: wire)
        try await eventually("the client's last flight has arrived") {
            wire.carryDown()
            return wire.atClient.peer.hasInput
        }
        let count = try await wire.atServer.exhaust(wire.server, shortage)
        try await eventually("the server's last messages wait") {
            wire.carryUp() > 0 && shortage == .noMemory || waits(wire.server)
        }
        try await wire.atServer.drain(count)
        let line = try await wire.carrying("the data has arrived") {
            _ = (try await client.value, try await server.value)
            try await wire.server.write("hello\n")
            return try await wire.client.readLine()
        }
        #expect(line == "hello")
        // Without a ticket, they are at most 100 bytes.
        #expect(wire.byteCountDown.withLock { $0 } > 200)
    }

    // MARK: - Data and close_notify

    /// The data does not fit into the buffer, and a close_notify follows it. The peer reads later.
    @Test(arguments: TLSProtocolVersion.tested, [1, 16_384, 300_001])
    func recordsAndTheEndThatWaitArriveWhole(_ version: TLSProtocolVersion, size: Int) async throws {
        let wire = try await Wire.secure(version)
        let count = wire.atServer.fill()
        let sent = pattern(size)
        let writing = Task.immediate { try await wire.server.write(sent) }
        wire.server.closeWriteStream()
        try await eventually("a record is pending") { waits(wire.server) }
        try await wire.atServer.drain(count)
        let received = try await wire.carrying("the end has arrived") { try await wire.client.readToEnd(maxLength: size) }
        try await writing.value
        // Describing a difference between long data would take `#expect` minutes.
        let isWhole = received == sent
        #expect(isWhole)
        // The other direction is still open.
        let answer = try await wire.carrying("the answer has arrived") {
            try await wire.client.write("still open\n")
            return try await wire.server.readLine()
        }
        #expect(answer == "still open")
    }

    enum Close: CaseIterable, Sendable { case disconnect, close, closeWriting }

    /// A round that takes as long as the grace period is inconclusive.
    @Test(arguments: TLSProtocolVersion.tested, Close.allCases)
    func aCloseNotifyThatWaitsIsSent(_ version: TLSProtocolVersion, _ close: Close) async throws {
        try await eventually("a round is quick enough") {
            let wire = try await Wire.secure(version)
            let (server, count, start) = (wire.server, wire.atServer.fill(), ContinuousClock.now)
            let closing = Task.immediate {
                switch close {
                case .disconnect: server.disconnect()
                case .close: try await server.close()
                case .closeWriting: server.closeWriteStream()
                }
            }
            try await wire.atServer.drain(count)
            wire.atServer.release()
            let end = await outcome {
                let bytes = try await wire.carrying("the end has arrived") { try await wire.client.read() }
                #expect(bytes == nil)
            }
            let isQuick = start.duration(to: .now) < .seconds(4)
            #expect(end == .served || !isQuick)
            try await closing.value
            return isQuick
        }
    }

    // MARK: - Alerts

    /// Returns whether the result proves something. A round that takes as long as the grace period is
    /// inconclusive.
    private func expect(_ alert: TLSAlert, _ result: Result<some Sendable, any Error>, since start: ContinuousClock.Instant)
        -> Bool
    {
        let isQuick = start.duration(to: .now) < .seconds(4)
        var received: TLSAlert?
        if case .failure(let error as AsyncSocketError) = result, error.tls?.code == .peerAlert { received = error.tls?.alert }
        #expect(received == alert || !isQuick)
        return isQuick
    }

    @Test(arguments: Shortage.allCases) func theAlertOfAFailedHandshakeThatWaitsIsSent(_ shortage: Shortage) async throws {
        try await eventually("a round is quick enough") {
            let wire = try Wire()
            let count = try await wire.atServer.exhaust(wire.server, shortage)
            let start = ContinuousClock.now
            let (client, server) = wire.startTLS(
                try TestCertificates.client().only(.tls12), try TestCertificates.server().only(.tls13))
            try await eventually("the server has failed") {
                wire.carryUp()
                return !wire.server.isConnected
            }
            #expect(await server.outcome == .failed(.tls))
            try await wire.atServer.drain(count)
            wire.atServer.release()
            let result = try await wire.carrying("the client has failed") { await client.result }
            return expect(.protocolVersion, result, since: start)
        }
    }

    /// A record that is not authentic.
    @Test(arguments: TLSProtocolVersion.tested, Shortage.allCases)
    func theAlertOfABrokenConnectionThatWaitsIsSent(_ version: TLSProtocolVersion, _ shortage: Shortage) async throws {
        try await eventually("a round is quick enough") {
            let wire = try await Wire.secure(version)
            let count = try await wire.atServer.exhaust(wire.server, shortage)
            let start = ContinuousClock.now
            let reading = Task.immediate { try await wire.server.read() }
            try wire.atServer.peer.send([23, 3, 3, 0, 40] + [UInt8](repeating: 7, count: 40))
            #expect(await reading.outcome == .failed(.tls))
            try await wire.atServer.drain(count)
            wire.atServer.release()
            let result = try await wire.carrying("the client has failed") {
                await Task { try await wire.client.read() }.result
            }
            return expect(.badRecordMAC, result, since: start)
        }
    }
}

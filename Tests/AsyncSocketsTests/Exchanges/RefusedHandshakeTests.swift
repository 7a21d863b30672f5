import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// `startDTLS` to a port that no program uses.
@Suite(.timeLimit(.patient)) struct RefusedHandshakeTests {
    private func socket(_ style: Style) async throws -> (StyledDatagramSocket, SocketEndpoint) {
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        let client = try StyledDatagramSocket(style)
        try await client.connect(to: refusing)
        return (client, refusing)
    }

    @Test(arguments: Style.allCases) func theTimeoutNamesTheRefusals(_ style: Style) async throws {
        let (client, refusing) = try await socket(style)
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .seconds(2)
        let error = await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings) }
        #expect(error?.code == .handshakeTimeout && error?.errno == ECONNREFUSED)
        #expect(error?.message.contains("did not complete within 2 seconds; the network reported ") == true)
        #expect(error?.message.hasSuffix("\(refusing): connection refused") == true)
        #expect(client.socket.isClosed)
    }

    @Test(arguments: Style.allCases) func aRefusalEndsTheHandshakeIfThatIsWanted(_ style: Style) async throws {
        let (client, refusing) = try await socket(style)
        client.socket.failsHandshakeOnDeliveryFailure = true
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .patient
        let error = await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings) }
        #expect(error?.errno == ECONNREFUSED && error?.fault == .peer && error?.operation == .startDTLS)
        #expect(error?.message == "\(refusing): connection refused")
        #expect(client.socket.isClosed)
    }

    /// A report from before the handshake is not about it.
    @Test func anEarlierRefusalDoesNotEndTheHandshake() async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.task)
        client.socket.failsHandshakeOnDeliveryFailure = true
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        try await client.send("hello")
        #expect(try await server.receive() == "hello")
    }
}

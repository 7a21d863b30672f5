import AsyncSockets
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// `disconnectWithReset()`: the peer never takes the end for the end of the data.
@Suite(.timeLimit(.patient)) struct ResetTests {
    private static let layers: [TLSProtocolVersion?] = [nil, .tls12, .tls13]

    @Test(arguments: layers) func aResetIsNeverAnOrderlyEnd(version: TLSProtocolVersion?) async throws {
        let pair = if let version { try await SocketPair(tls: version) } else { try await SocketPair() }
        try await pair.server.write("part")
        #expect(try await pair.client.read(exactly: 4) == Data("part"))
        pair.server.disconnectWithReset()
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.client.readToEnd() }
        #expect(error?.code == .connectionReset)
        #expect(pair.server.isDisconnected)
    }

    @Test(arguments: Link.Delivery.allCases) func aResetIsReportedToBothDelegates(delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.client.readData(withTimeout: .patient, tag: 1)
        link.server.disconnectWithReset()
        #expect(try await link.atClient.disconnected()?.code == .connectionReset)
        #expect(try await link.atServer.disconnected() == nil)
    }

    /// The delegate resets the connection before the loop has added its descriptor.
    @Test(arguments: Link.Delivery.allCases) func anAcceptedConnectionIsResetImmediately(delivery: Link.Delivery) async throws {
        final class Refusal: AsyncSocketDelegate, Sendable {
            func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) { newSocket.disconnectWithReset() }
        }
        let refusal = Refusal()
        let listener = AsyncSocket(refusal, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        for _ in 1...20 {
            let client = AsyncSocket()
            let error = await #expect(throws: AsyncSocketError.self) {
                try await client.connect(to: "127.0.0.1", port: listener.localPort)
                _ = try await client.readToEnd()
            }
            #expect(error?.code == .connectionReset)
        }
        listener.disconnect()
        withExtendedLifetime(refusal) {}
    }

    /// A Unix-domain socket has no reset, but no close_notify is sent either.
    @Test(arguments: [TLSProtocolVersion.tls12, .tls13])
    func withoutAResetTLSReportsATruncation(version: TLSProtocolVersion) async throws {
        let folder = try TemporaryFolder()
        let listener = try SocketListener(address: folder.address("s"), tls: TestCertificates.server())
        let serving = Task {
            try await listener.run { socket in
                // Until then, the client may not have received the end of the handshake.
                _ = try await socket.read(exactly: 1)
                socket.disconnectWithReset()
            }
        }
        let client = AsyncSocket()
        try await client.connect(toPath: folder.path("s"), tls: TestCertificates.client().only(version))
        try await client.write("x")
        let error = await #expect(throws: AsyncSocketError.self) { try await client.readToEnd() }
        #expect(error?.code == .truncated)
        await listener.close()
        try await serving.value
    }

    @Test func aSocketThatIsNotInUseIsNotReset() async throws {
        let socket = AsyncSocket()
        socket.disconnectWithReset()
        #expect(socket.isDisconnected)
    }
}

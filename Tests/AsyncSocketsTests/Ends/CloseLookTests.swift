import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

/// Edge cases of closing and limits that no other test checks closely enough to notice a small mistake.
@Suite(.timeLimit(.patient)) struct CloseLookTests {
    @Test func aListenerOfTwoFamiliesReportsOneEnd() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        for _ in 0..<20 {
            try listener.accept(onInterface: "localhost", port: 0)
            listener.disconnect()
            #expect(try await recorder.disconnected() == nil)
            // A second disconnect event would be delivered by the same loop before the next connection.
            try listener.accept(onInterface: "localhost", port: 0)
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            let child = try await recorder.accepted()
            child.removeDelegate()
            listener.disconnect()
            #expect(try await recorder.disconnected() == nil)
            withExtendedLifetime((client, child)) {}
        }
        #expect(recorder.unread.isEmpty)
    }

    /// The kernel buffers of both sides hold some megabytes. The rest is never read, so the write times out.
    @Test(arguments: [false, true])
    func aSocketThatNeverReadsTakesLittleAhead(secure: Bool) async throws {
        let link = try await Link.make()
        if secure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        link.server.write(Data(count: 64 << 20), withTimeout: 3, tag: 0)
        guard case .disconnected(let error) = await link.atServer.next() else {
            Issue.record("all of it was taken")
            return
        }
        #expect(error?.code == .writeTimeout)
    }

    /// A rejected peer must receive the alert even if it has sent more than the server reads.
    @Test func aRefusedPeerThatSentMuchStillGetsTheAlert() async throws {
        let atListener = Recorder { _, told in
            guard case .accepted(let socket) = told else { return }
            #expect(throws: Never.self) { try socket.beginTLS(settings: TestCertificates.server()) }
        }
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        for _ in 0..<10 {
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            // A handshake record with an empty ClientHello, followed by many bytes.
            let bytes: [UInt8] = [0x16, 0x03, 0x01, 0x00, 0x04, 0x01, 0x00, 0x00, 0x00] + Array(repeating: 0x16, count: 300_000)
            try client.send(bytes)
            var alert: [UInt8] = []
            while case let piece = try client.receive(), !piece.isEmpty { alert += piece }
            #expect(alert.count == 7)
            #expect(
                alert.prefix(6) == [0x15, 0x03, 0x03, 0x00, 0x02, 0x02]
                    || alert.prefix(6) == [0x15, 0x03, 0x01, 0x00, 0x02, 0x02])
        }
        withExtendedLifetime(listener) {}
    }
}

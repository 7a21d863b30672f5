import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Offers that a server accepts or rejects, without a handshake.
@Suite(.timeLimit(.patient)) struct ProbingTests {
    private static let suites: [UInt16] = [0x1301, 0xC02B]
    private static let probe = TLSProbe(version: 0x0304, cipherSuites: suites)

    private func reply(of version: UInt16, _ suites: [UInt16] = suites, from server: TLSServerSettings) async throws
        -> TLSProbe.Reply
    {
        let (socket, _) = try await connectedSocket([.startTLS(server)])
        defer { socket.disconnect() }
        return try await TLSProbe(version: version, cipherSuites: suites, serverName: "localhost").reply(over: socket)
    }

    @Test func aServerChoosesFromTheOffer() async throws {
        let server = try TestCertificates.server()
        #expect(try await reply(of: 0x0304, from: server) == .accepted(version: 0x0304, cipherSuite: 0x1301))
        #expect(try await reply(of: 0x0303, from: server) == .accepted(version: 0x0303, cipherSuite: 0xC02B))
    }

    @Test func aServerRejectsAnOldVersion() async throws {
        #expect(try await reply(of: 0x0301, from: TestCertificates.server()) == .rejected(.protocolVersion))
    }

    @Test func aServerRejectsAWeakSuite() async throws {
        #expect(try await reply(of: 0x0303, [0x000A, 0x002F], from: TestCertificates.server()) == .rejected(.handshakeFailure))
    }

    @Test func anotherProtocolIsNotTLS() async throws {
        let (socket, _) = try await connectedSocket([.send("220 mail.example.org ESMTP\r\n")])
        defer { socket.disconnect() }
        #expect(try await Self.probe.reply(over: socket) == .notTLS)
    }

    @Test func aServerMayCloseTheConnectionInsteadOfReplying() async throws {
        let (socket, _) = try await connectedSocket([.close])
        await #expect(throws: AsyncSocketError.self) {
            try await Self.probe.reply(over: socket)
        }
    }

    @Test func anOfferFollowsTheDialogueOfSTARTTLS() async throws {
        let (socket, _) = try await connectedSocket([
            .send("220 ready\r\n"), .expect(through: "\r\n"), .send("250-mail\r\n250 STARTTLS\r\n"), .expect(through: "\r\n"),
            .send("220 go ahead\r\n"),
            .startTLS(TestCertificates.server()),
        ])
        defer { socket.disconnect() }
        let reply = try await Self.probe.reply(over: socket, after: .smtp(name: "client.example"))
        #expect(reply == .accepted(version: 0x0304, cipherSuite: 0x1301))
    }

    /// The last message of a MySQL client requests TLS, and its offer follows without a reply.
    @Test func anOfferFollowsTheLastMessageOfADialogue() async throws {
        let mySQL = try #require(DialogueTests.Sides.all.first { $0.testDescription == "MySQL" })
        let (client, server) = try await StyledSocket.pair(.task, through: .listening())
        async let accepting = StyledSocket.refusal {
            try await server.acceptStartTLS(as: mySQL.server, TestCertificates.server())
        }
        let reply = try await Self.probe.reply(over: client.socket, after: mySQL.client, timeout: .patient)
        #expect(reply == .accepted(version: 0x0304, cipherSuite: 0x1301))
        client.socket.disconnect()
        // The server was in its handshake, which a probe does not complete.
        #expect(try await accepting?.startTLS == nil)
    }

    @Test func aServerThatRefusesSTARTTLSReceivesNoOffer() async throws {
        let (socket, _) = try await connectedSocket([
            .send("220 ready\r\n"), .expect(through: "\r\n"), .send("250-mail\r\n250 SIZE 1000\r\n"),
        ])
        defer { socket.disconnect() }
        await #expect(throws: StartTLSError.self) {
            try await Self.probe.reply(over: socket, after: .smtp(name: "client.example"))
        }
    }

    @Test func aSilentServerIsNotAwaitedForever() async throws {
        let (socket, _) = try await connectedSocket([])
        let error = await #expect(throws: AsyncSocketError.self) {
            try await Self.probe.reply(over: socket, timeout: .milliseconds(50))
        }
        #expect(error?.code == .deadlineExceeded)
    }
}

import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Handshakes with slow keys, which run outside of the event loop, over real sockets.
@Suite(.timeLimit(.patient)) struct HandshakeWorkSocketTests {
    private static let identities = Result {
        let server = try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: .rsa3072).identity()
        return (server, try TestCertificates.authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity())
    }

    /// Returns settings in which both sides sign slowly.
    private static func settings(_ version: TLSProtocolVersion) throws -> (client: TLSClientSettings, server: TLSServerSettings) {
        var (client, server) = try TestCertificates.mutual()
        (client.handshakeTimeout, server.handshakeTimeout) = (.patient, .patient)
        (server.identity, client.identity) = try identities.get()
        return (client.only(version), server.only(version))
    }

    @Test(arguments: TLSProtocolVersion.tested) func manyShakeHandsAtOnce(_ version: TLSProtocolVersion) async throws {
        let (client, server) = try Self.settings(version)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server)
        try await serving(listener, { try await $0.echo() }) { _ in
            try await withThrowingTaskGroup { group in
                for number in 0..<40 {
                    group.addTask {
                        try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: client) { socket in
                            try await socket.write("hello \(number)\n")
                            #expect(try await socket.readLine() == "hello \(number)")
                        }
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    /// The delegate decides between two steps that run outside of the event loop.
    @Test(arguments: TLSProtocolVersion.tested) func aDelegateDecidesInBetween(_ version: TLSProtocolVersion) async throws {
        var (client, server) = try Self.settings(version)
        client.trustEvaluation = .delegate
        server.trustEvaluation = .delegate
        let link = try await Link.make()
        try link.startTLS(client: client, server: server)
        try await link.atClient.asked().1(true)
        try await link.atServer.asked().1(true)
        try await link.atClient.secured()
        try await link.atServer.secured()
    }

    @Test(arguments: TLSProtocolVersion.tested, [0, 1, 2, 5]) func aCloseMeanwhileEndsBoth(
        _ version: TLSProtocolVersion, turns: Int
    ) async throws {
        let (client, server) = try Self.settings(version)
        for _ in 0..<20 {
            let link = try await Link.make()
            try link.startTLS(client: client, server: server)
            for _ in 0..<turns { await Task.yield() }
            link.server.disconnect()
            _ = try await link.atClient.disconnected()
            _ = try await link.atServer.disconnected()
        }
    }

    /// On a busy machine, a thread may sign before the loop checks its timers. Then try again.
    @Test func aTimeoutMeanwhileIsATimeout() async throws {
        var (client, server) = try Self.settings(.tls13)
        server.handshakeTimeout = .seconds(0.000_1)
        client.handshakeTimeout = .patient
        for _ in 0..<100 {
            let link = try await Link.make()
            try link.startTLS(client: client, server: server)
            let end = await link.atServer.next()
            if case .secured = end {
                link.server.disconnect()
                continue
            }
            guard case .disconnected(let error) = end else { throw Unexpected(description: "\(end)") }
            #expect(error?.code == .handshakeTimeout)
            #expect(try await link.atClient.disconnected() != nil)
            return
        }
        Issue.record("no handshake of 100 ran out of time")
    }
}

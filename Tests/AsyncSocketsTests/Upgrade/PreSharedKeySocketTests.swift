import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Pre-shared keys over real sockets, with tasks and with delegates.
@Suite(.timeLimit(.patient)) struct PreSharedKeySocketTests {
    private static let bytes = Array("a key of 24 bytes, ASCII".utf8)
    private let alice = Array("alice".utf8)

    private func key(_ identity: String = "alice", _ bytes: [UInt8] = bytes) throws -> TLSPreSharedKey {
        try TLSPreSharedKey(identity: identity, key: bytes)
    }

    private func client(_ version: TLSProtocolVersion, _ key: TLSPreSharedKey? = nil) throws -> TLSClientSettings {
        try TLSSettings.client(serverName: "localhost", preSharedKey: key ?? self.key()).only(version).patient
    }

    private func server(_ version: TLSProtocolVersion) throws -> TLSServerSettings {
        let key = try key()
        return TLSSettings.server(preSharedKeys: TLSPreSharedKeys { $0 == key.identity ? key : nil }).only(version).patient
    }

    @Test(arguments: TLSProtocolVersion.tested) func aListenerKnowsItsClientsByKey(_ version: TLSProtocolVersion) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server(version))
        let seen = Findings<[UInt8]?>()
        let failures = Findings<TLSError.Code?>()
        try await serving(
            listener, onError: { error, _ in failures.add((error as? AsyncSocketError)?.tls?.code) },
            { socket in
                seen.add(socket.tlsSession?.preSharedKeyIdentity)
                try await socket.echo()
            }
        ) { _ in
            let settings = try client(version)
            for _ in 0..<3 {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
                    try await socket.write("hello\n")
                    #expect(try await socket.readLine() == "hello")
                    #expect(socket.tlsSession?.preSharedKeyIdentity == Array("alice".utf8))
                    #expect(socket.tlsSession?.isResumed == false)
                }
            }
            for wrong in [try key("bob"), try key("alice", Array(Self.bytes.reversed()))] {
                let wrongSettings = try client(version, wrong)
                let error = await #expect(throws: AsyncSocketError.self) {
                    try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: wrongSettings) { _ in }
                }
                #expect(error?.tls?.code == .preSharedKeyMismatch)
            }
        }
        #expect(seen.all == [alice, alice, alice])
    }

    @Test(arguments: TLSProtocolVersion.tested) func delegatesUpgradeWithAKey(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        try link.client.beginTLS(settings: client(version))
        try link.server.beginTLS(settings: server(version))
        try await link.atClient.secured()
        try await link.atServer.secured()
        #expect(link.client.tlsSession?.preSharedKeyIdentity == alice)
        #expect(link.server.tlsSession?.preSharedKeyIdentity == alice)
    }

    /// The trust closure applies only to certificates, and there is none.
    @Test func noOneIsAskedAboutAKey() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server(.tls13))
        try await serving(listener, { try await $0.echo() }) { _ in
            let settings = try client(.tls13)
            let session = try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
                try await socket.startTLS(settings: settings) { _ in
                    Issue.record("asked")
                    return false
                }
            }
            #expect(session.preSharedKeyIdentity == alice)
        }
    }
}

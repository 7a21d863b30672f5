import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Raw public keys over real sockets, with tasks and with delegates. With OpenSSL older than 3.2, each test
/// checks that its settings are rejected.
@Suite(.timeLimit(.patient)) struct RawPublicKeySocketTests {
    private let client: TLSClientSettings
    private let server: TLSServerSettings
    private let clientKey: [UInt8]
    private let serverKey: [UInt8]

    init() throws {
        var (client, server) = try TestCertificates.mutual()
        clientKey = try #require(client.identity?.privateKey.publicKey)
        serverKey = try #require(server.identity?.privateKey.publicKey)
        client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [serverKey]))
        server.clients = .rawPublicKeys(try TLSRawPublicKeys(expected: [clientKey]))
        (client.presentsRawPublicKey, server.presentsRawPublicKey) = (true, true)
        (self.client, self.server) = (client, server)
    }

    private func expecting(_ key: [UInt8], _ version: TLSProtocolVersion) throws -> TLSClientSettings {
        var settings = client.only(version)
        settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [key]))
        return settings
    }

    private func isSupported() async throws -> Bool {
        if TLSRawPublicKeys.isSupported { return true }
        for settings in [client.values, server.values].map({ TLSClientSettings($0) }) {
            let link = try await Link.make()
            let error = #expect(throws: AsyncSocketError.self) { try link.client.beginTLS(settings: settings) }
            #expect(error?.tls?.code == .invalidSettings && error?.message.contains("OpenSSL 3.2") == true)
        }
        return false
    }

    @Test(arguments: TLSProtocolVersion.tested) func delegatesUpgradeWithRawKeys(_ version: TLSProtocolVersion) async throws {
        guard try await isSupported() else { return }
        let link = try await Link.make()
        try link.client.beginTLS(settings: client.only(version))
        try link.server.beginTLS(settings: server.only(version))
        try await link.atClient.secured()
        try await link.atServer.secured()
        #expect(link.client.tlsSession?.peerPublicKey == serverKey)
        #expect(link.server.tlsSession?.peerPublicKey == clientKey)
    }

    @Test(arguments: TLSProtocolVersion.tested) func aListenerKnowsItsClientsByRawKey(_ version: TLSProtocolVersion) async throws
    {
        guard try await isSupported() else { return }
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server.only(version))
        let seen = Findings<[UInt8]?>()
        try await serving(
            listener, onError: { _, _ in },
            { socket in
                seen.add(socket.tlsSession?.peerPublicKey)
                try await socket.echo()
            }
        ) { _ in
            let settings = client.only(version)
            for _ in 0..<2 {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
                    try await socket.write("hello\n")
                    #expect(try await socket.readLine() == "hello")
                    #expect(socket.tlsSession?.peerPublicKey == serverKey && socket.tlsSession?.isResumed == false)
                }
            }
            let wrong = try expecting(clientKey, version)
            let error = await #expect(throws: AsyncSocketError.self) {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: wrong) { _ in }
            }
            #expect(error?.tls?.code == .rawPublicKeyMismatch)
        }
        #expect(seen.all == [clientKey, clientKey])
    }

    @Test(arguments: [true, false]) func theTrustClosureSeesTheKey(isAccepted: Bool) async throws {
        guard try await isSupported() else { return }
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server)
        let asked = Findings<[UInt8]?>()
        try await serving(listener, onError: { _, _ in }, { try await $0.echo() }) { _ in
            let settings = client
            let code = try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
                do {
                    let session = try await socket.startTLS(settings: settings) { trust in
                        asked.add(trust.publicKey)
                        return isAccepted
                    }
                    #expect(session.peerPublicKey == serverKey)
                    return TLSError.Code?.none
                } catch {
                    return (error as? AsyncSocketError)?.tls?.code
                }
            }
            #expect(code == (isAccepted ? nil : .trustRejected))
        }
        #expect(asked.all == [serverKey])
    }
}

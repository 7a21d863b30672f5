import AsyncSocketsTesting
import Testing

@testable import SocketTLS

/// A client that expects the server's raw public key, and a server that sends it.
struct RawPublicKeyFixture {
    var base: Fixture
    let serverKey: [UInt8]
    let clientKey: [UInt8]
    let clientIdentity: TLSIdentity

    init(_ version: TLSProtocolVersion = .tls13) throws {
        base = try Fixture(version)
        serverKey = try #require(base.server.identity?.privateKey.publicKey)
        clientIdentity = try base.authority.identity(.client(commonName: "alice"))
        clientKey = try #require(clientIdentity.privateKey.publicKey)
        base.client.trustRoots = try Fixture.stranger.roots
        base.client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [serverKey]))
        base.server.presentsRawPublicKey = true
    }

    var client: TLSClientSettings {
        get { base.client }
        set { base.client = newValue }
    }

    var server: TLSServerSettings {
        get { base.server }
        set { base.server = newValue }
    }

    /// Makes the client send its key too, and the server expect it.
    mutating func makeMutual(_ use: KeyUse = .required) throws {
        client.identity = clientIdentity
        client.presentsRawPublicKey = true
        server.trustRoots = try Fixture.stranger.roots
        server.clients = .rawPublicKeys(try TLSRawPublicKeys(expected: [clientKey]))
        server.values.rawPublicKeys?.use = use
    }

    func shaken(chunk: Int = .max) throws -> EnginePair {
        let pair = try EnginePair(client, server, chunk: chunk)
        pair.shakeHands()
        return pair
    }

    /// An unexpected key.
    static var otherKey: [UInt8] {
        get throws { try #require(Fixture.stranger.identity(.client(commonName: "mallory")).privateKey.publicKey) }
    }

    /// Returns whether the loaded OpenSSL supports raw public keys. If not, checks that the settings are
    /// rejected, and the rest of the test cannot run.
    func isSupported() throws -> Bool {
        if TLSRawPublicKeys.isSupported { return true }
        for settings in [client.values, server.values] {
            let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
            #expect(error?.code == .invalidSettings && error?.message.contains("require OpenSSL 3.2 or newer") == true)
        }
        return false
    }
}

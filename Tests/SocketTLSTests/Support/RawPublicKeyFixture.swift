import AsyncSocketsTesting
import Testing

@testable import SocketTLS

/// A client that expects the server's key, and a server that shows it.
struct RawPublicKeyFixture {
    var base: Fixture
    let serverKey: [UInt8]
    let clientKey: [UInt8]
    let clientIdentity: TLSIdentity

    init(_ version: TLSVersion = .tls13) throws {
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

    /// The client shows its key too, and the server expects it.
    mutating func makeMutual(_ use: TLSRawPublicKeys.Use = .required) throws {
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

    /// A key that no one expects.
    static var otherKey: [UInt8] {
        get throws { try #require(Fixture.stranger.identity(.client(commonName: "mallory")).privateKey.publicKey) }
    }

    /// True where the loaded OpenSSL has raw keys. Elsewhere the settings have to be an error, which is
    /// checked, and the rest of a test cannot run.
    func isSupported() throws -> Bool {
        if TLSRawPublicKeys.isSupported { return true }
        for settings in [client.values, server.values] {
            let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
            #expect(error?.code == .invalidSettings && error?.message.contains("require OpenSSL 3.2 or newer") == true)
        }
        return false
    }
}

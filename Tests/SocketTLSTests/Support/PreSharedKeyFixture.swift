import AsyncSocketsTesting
import SocketTLS

/// Settings with a common pre-shared key for both sides.
struct PreSharedKeyFixture {
    var client: TLSClientSettings
    var server: TLSServerSettings

    static let bytes = Array("0123456789abcdef0123456789abcdef".utf8)
    static let otherBytes = Array("another key of 32 bytes in ASCII".utf8)

    static func key(
        _ identity: String = "alice", _ bytes: [UInt8] = bytes, _ hash: TLSPreSharedKey.HashAlgorithm = .sha256
    ) throws -> TLSPreSharedKey {
        try TLSPreSharedKey(identity: identity, key: bytes, hash: hash)
    }

    /// Creates a client with `clientKey` and a server with `keys`.
    init(_ version: TLSProtocolVersion = .tls13, _ clientKey: TLSPreSharedKey, _ keys: TLSPreSharedKeys) {
        client = .client(serverName: Fixture.host, preSharedKey: clientKey)
        server = .server(preSharedKeys: keys)
        useOnly(version)
    }

    init(_ version: TLSProtocolVersion = .tls13) throws {
        self.init(version, try Self.key(), TLSPreSharedKeys(try Self.key()))
    }

    mutating func useOnly(_ version: TLSProtocolVersion) {
        (client.minimumVersion, client.maximumVersion) = (version, version)
        (server.minimumVersion, server.maximumVersion) = (version, version)
    }

    func shaken(chunk: Int = .max) throws -> EnginePair {
        let pair = try EnginePair(client, server, chunk: chunk)
        pair.shakeHands()
        return pair
    }
}

extension EnginePair {
    /// Neither side has a session.
    var isRefused: Bool { client.session == nil && server.session == nil && !isComplete }
}

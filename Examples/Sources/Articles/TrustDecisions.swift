// Article: pins
import AsyncSockets

/// Settings for servers with the key of one of the certificates in a file.
func settings(pinnedTo path: String) throws -> TLSClientSettings {
    let certificates = try TLSCertificate.certificates(file: path)
    let pins = Set(certificates.map(\.publicKeySHA256))
    var settings = TLSSettings.client
    settings.proof = .certificates(TLSCertificateRules(pins: pins))
    return settings
}
// Article: end

// Article: clients
/// Settings for a server that requires certificates from your authority.
func settings(identity: TLSIdentity) -> TLSServerSettings {
    var settings = TLSSettings.server(identity: identity)
    settings.clients = .certificates(.required)
    settings.trustRoots = .file(path: "clients.pem")
    return settings
}
// Article: end

// Article: service
/// Whether a service on this machine permits the certificate of a peer.
@Sendable func isPermitted(_ peer: PeerTrust) async throws -> Bool {
    guard let serialNumber = peer.leaf?.serialNumber else { return false }
    return try await AsyncSocket.withConnection(toPath: "/run/permits.sock") {
        try await $0.writeLine(serialNumber)
        return try await $0.readLine() == "permitted"
    }
}

/// A listener for clients that the service permits.
func makeListener(identity: TLSIdentity) throws -> SocketListener {
    var settings = settings(identity: identity)
    settings.trustTimeout = .seconds(5)
    return try SocketListener(port: 8443, tls: settings, trust: isPermitted)
}
// Article: end

// Article: deadline
/// Connects to a server that the service permits, within ten seconds in total.
func connect(_ socket: AsyncSocket, to host: String) async throws {
    try await withDeadline(.seconds(10)) {
        try await socket.connect(
            to: host, port: 8443, tls: .client, trust: isPermitted)
    }
}
// Article: end

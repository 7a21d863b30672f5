internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation

/// The certificates for this run, their folder, and the settings for both sides, shared by all scenes.
struct Stage: Sendable {
    let screen: Screen
    let folder: String
    let authority: CertificateAuthority
    let server: IssuedCertificate
    let client: IssuedCertificate
    private let isTLS12Only: Bool

    init(screen: Screen, isTLS12Only: Bool) throws {
        self.screen = screen
        self.isTLS12Only = isTLS12Only
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("starttls-demo-\(UUID().uuidString)")
        try FileManager.default.createDirectory(
            at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        folder = url.path
        authority = try CertificateAuthority(name: "Demo Authority")
        server = try authority.issue(.server(names: ["localhost"]))
        client = try authority.issue(.client(commonName: "alice"))
    }

    func clear() {
        try? FileManager.default.removeItem(atPath: folder)
    }

    func clientSettings(for name: String = "localhost") throws -> TLSClientSettings {
        var settings = TLSSettings.client(serverName: name)
        settings.trustRoots = try authority.roots
        settings.identity = try client.identity()
        if isTLS12Only { settings.maximumVersion = .tls12 }
        return settings
    }

    /// Requires a client certificate, which the delegate evaluates.
    func serverSettings() throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: try server.identity())
        settings.trustRoots = try authority.roots
        settings.clients = .certificates(.required)
        settings.trustEvaluation = .delegate
        if isTLS12Only { settings.maximumVersion = .tls12 }
        return settings
    }
}

internal import AsyncSocketsTesting
internal import COpenSSL
internal import Foundation
internal import SocketTLS

/// An openssl.cnf that allows what no context may have, such as resumption without a key exchange. OpenSSL reads it once in a process.
enum ConfigurationProbe {
    private static let configuration = """
        openssl_conf = all
        [all]
        ssl_conf = tls
        [tls]
        system_default = options
        [options]
        Options = AllowNoDHEKEX, UnsafeLegacyRenegotiation, ClientRenegotiation

        """

    static func run() throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("AsyncSockets-\(UUID().uuidString).cnf")
        try configuration.write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        setenv("OPENSSL_CONF", file.path, 1)

        let bare = SSL_CTX_new(TLS_server_method())
        defer { SSL_CTX_free(bare) }
        let allowed = SSL_CTX_get_options(bare) & COpenSSL_unsafeOptions()
        guard allowed.nonzeroBitCount == 3 else { throw ProbeFailure(description: "the file has no effect") }

        let authority = try CertificateAuthority()
        var server = TLSSettings.server(identity: try authority.issue(.server(names: ["localhost"])).identity())
        server.sessionTicketCount = 1
        for settings in [server, try authority.clientSettings(serverName: "localhost")] {
            let left = try TLSContext.context(for: settings).options & allowed
            guard left == 0 else { throw ProbeFailure(description: "options \(String(left, radix: 16)) are left") }
        }
    }
}

internal import AsyncSocketsTesting
internal import COpenSSL
internal import Foundation
internal import SocketBuffers
internal import SocketTLS

/// An openssl.cnf that allows what contexts must not allow. OpenSSL reads it once per process, so each file
/// needs its own process.
enum ConfigurationProbe {
    static func run(_ name: String) throws {
        guard let lines = files[name] else { throw ProbeFailure(description: "there is no configuration \(name)") }
        let text = "openssl_conf = all\n[all]\nssl_conf = tls\n[tls]\nsystem_default = options\n[options]\n" + lines + "\n"
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("AsyncSockets-\(UUID().uuidString).cnf")
        try text.write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        setenv("OPENSSL_CONF", file.path, 1)
        guard let bare = SSL_CTX_new(TLS_server_method()) else { throw ProbeFailure(description: "the file is not read") }
        defer { SSL_CTX_free(bare) }
        let authority = try CertificateAuthority()
        switch name {
        case "options": try checkOptions(bare, authority)
        case "anonymous": try checkAnonymousServer(bare, authority)
        case "strict": try checkStrictLevel(bare, authority)
        default: try checkHandshakes(authority)
        }
    }

    private static let files = [
        "options":
            "Options = AllowNoDHEKEX, UnsafeLegacyRenegotiation, ClientRenegotiation, -ServerPreference, -ExtendedMasterSecret",
        "anonymous": "CipherString = ALL:@SECLEVEL=0",
        "old": "CipherString = kRSA:@SECLEVEL=0\nMinProtocol = SSLv3\nMaxProtocol = TLSv1.2\nProtocol = -TLSv1.3",
        "weak": """
        CipherString = eNULL:aNULL:kDHE:@SECLEVEL=0
        Ciphersuites = TLS_AES_128_CCM_8_SHA256
        Groups = ffdhe8192:X448
        SignatureAlgorithms = RSA+SHA1
        ClientSignatureAlgorithms = RSA+SHA1
        """,
        "asking": "VerifyMode = Require\nRecordPadding = 16384\nNumTickets = 200",
        "strict": "CipherString = DEFAULT:@SECLEVEL=3",
    ]

    private static func settings(_ authority: CertificateAuthority) throws -> (
        client: TLSClientSettings, server: TLSServerSettings
    ) {
        let client = try authority.clientSettings(serverName: "localhost")
        return (client, .server(identity: try authority.issue(.server(names: ["localhost"])).identity()))
    }

    /// The bits in openssl/ssl.h by name, so that the library's constants are not compared with themselves.
    private static let bits: [String: UInt64] = [
        "NO_TICKET": 14, "NO_COMPRESSION": 17, "ENABLE_MIDDLEBOX_COMPAT": 20, "PRIORITIZE_CHACHA": 21,
        "CIPHER_SERVER_PREFERENCE": 22, "NO_RENEGOTIATION": 30, "NO_TX_CERTIFICATE_COMPRESSION": 32,
        "NO_RX_CERTIFICATE_COMPRESSION": 33,
    ]

    private static func options(_ names: [String]) -> UInt64 {
        names.reduce(0) { $0 | 1 << (bits[$1] ?? 63) }
    }

    private static func checkOptions(_ bare: OpaquePointer, _ authority: CertificateAuthority) throws {
        var wanted = options([
            "NO_COMPRESSION", "ENABLE_MIDDLEBOX_COMPAT", "PRIORITIZE_CHACHA", "CIPHER_SERVER_PREFERENCE", "NO_RENEGOTIATION",
        ])
        // OpenSSL supports certificate compression since version 3.2.
        if OpenSSL_version_num() >= 0x3020_0000 {
            wanted |= options(["NO_TX_CERTIFICATE_COMPRESSION", "NO_RX_CERTIFICATE_COMPRESSION"])
        }
        guard SSL_CTX_get_options(bare) & ~wanted != 0 else { throw ProbeFailure(description: "the file has no effect") }
        var (client, server) = try settings(authority)
        guard try TLSContext.context(for: client).options == wanted else {
            throw ProbeFailure(description: "options of a client that resumes")
        }
        client.resumption = .none
        for settings in [client.values, server.values] {
            let options = try TLSContext.context(for: settings).options
            guard options == wanted | Self.options(["NO_TICKET"]) else {
                throw ProbeFailure(description: "options \(String(options, radix: 16))")
            }
        }
        server.sessionTickets = .issued(1)
        guard try TLSContext.context(for: server).options == wanted else {
            throw ProbeFailure(description: "options with tickets")
        }
    }

    /// The server has no certificate, and OpenSSL's own client would accept it.
    private static func checkAnonymousServer(_ bare: OpaquePointer, _ authority: CertificateAuthority) throws {
        SSL_CTX_ctrl(bare, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(TLS1_2_VERSION), nil)
        guard let other = SSL_CTX_new(TLS_client_method()), SSL_CTX_get_security_level(bare) == 0 else {
            throw ProbeFailure(description: "the file has no effect")
        }
        defer { SSL_CTX_free(other) }
        let peer = try AnonymousServer(bare)
        let unsafeClient = SSL_new(other)
        defer { SSL_free(unsafeClient) }
        guard peer.shakesHands(with: unsafeClient) else { throw ProbeFailure(description: "no client shakes hands with it") }
        for evaluation in [TLSTrustEvaluation.builtIn, .delegate, .manual] {
            var settings = try settings(authority).client
            settings.trustEvaluation = evaluation
            let client = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
            let answer = try AnonymousServer(bare).shakeHands(with: client)
            guard case .failed(let error) = answer, error.fault == .peer || error.fault == .certificate else {
                throw ProbeFailure(description: "\(evaluation): \(answer), with \(client.session?.cipherSuite ?? "no suite")")
            }
        }
    }

    private static func checkStrictLevel(_ bare: OpaquePointer, _ authority: CertificateAuthority) throws {
        guard SSL_CTX_get_security_level(bare) == 3 else { throw ProbeFailure(description: "the file has no effect") }
        let issued = try authority.issue(.server(names: ["localhost"]), keyType: .rsa2048)
        do throws(TLSError) {
            _ = try TLSContext.context(for: .server(identity: issued.identity()))
        } catch {
            return
        }
        throw ProbeFailure(description: "an RSA key of 2048 bits is good enough for level 3")
    }

    /// Two of our own engines negotiate the same as always.
    private static func checkHandshakes(_ authority: CertificateAuthority) throws {
        var (client, server) = try settings(authority)
        for version in [TLSProtocolVersion.tls13, .tls12] {
            (client.maximumVersion, server.maximumVersion) = (version, version)
            let pair = try EnginePair(client, server)
            pair.shakeHands()
            guard pair.isComplete, let session = pair.server.session else {
                throw ProbeFailure(description: "\(pair.clientError.debugDescription) \(pair.serverError.debugDescription)")
            }
            let suite = version == .tls13 ? "TLS_AES_256_GCM_SHA384" : "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
            guard session.cipherSuite == suite, session.group?.uppercased().hasPrefix("X25519") == true,
                session.protocolVersion == version, session.peerCertificates.isEmpty
            else { throw ProbeFailure(description: "\(session)") }
            // A record of one byte is not padded, and no ticket is sent.
            _ = [UInt8(7)].withUnsafeBytes { pair.server.write($0) }
            guard pair.server.output.count < 64 else {
                throw ProbeFailure(description: "\(pair.server.output.count) bytes for one")
            }
            try checkClient(client, server, authority)
        }
    }

    /// A client signs as it always does.
    private static func checkClient(_ client: TLSClientSettings, _ server: TLSServerSettings, _ authority: CertificateAuthority)
        throws
    {
        var (client, server) = (client, server)
        client.identity = try authority.issue(.client(commonName: "alice")).identity()
        (server.clients, server.trustRoots) = (.certificates(.required), try authority.roots)
        let pair = try EnginePair(client, server)
        pair.shakeHands()
        guard pair.isComplete, pair.server.session?.peerSignatureAlgorithm == "ECDSA-SHA256" else {
            throw ProbeFailure(description: "client: \(pair.clientError.debugDescription) \(pair.serverError.debugDescription)")
        }
    }
}

/// OpenSSL's own server, as configured by the file.
private final class AnonymousServer {
    private let ssl: OpaquePointer
    private let input: OpaquePointer
    private let output: OpaquePointer

    init(_ context: OpaquePointer) throws {
        guard let ssl = SSL_new(context), let input = BIO_new(BIO_s_mem()), let output = BIO_new(BIO_s_mem()) else {
            throw ProbeFailure(description: "no memory")
        }
        (self.ssl, self.input, self.output) = (ssl, input, output)
        SSL_set_bio(ssl, input, output)
        SSL_set_accept_state(ssl)
    }

    deinit { SSL_free(ssl) }

    func shakesHands(with client: OpaquePointer?) -> Bool {
        // Each reads what the other writes, which needs another reference to each BIO.
        BIO_up_ref(input)
        BIO_up_ref(output)
        SSL_set_bio(client, output, input)
        SSL_set_connect_state(client)
        for _ in 0..<10 {
            _ = OpenSSLCall.attempt { SSL_do_handshake(client) }
            _ = OpenSSLCall.attempt { SSL_do_handshake(ssl) }
        }
        return SSL_is_init_finished(client) == 1 && SSL_is_init_finished(ssl) == 1
    }

    func shakeHands(with client: TLSEngine) -> TLSEngine.HandshakeAnswer {
        var answer = client.handshake()
        for _ in 0..<10 {
            let bytes = Array(client.output.readableBytes)
            client.output.consume(bytes.count)
            if !bytes.isEmpty { BIO_write(input, bytes, Int32(bytes.count)) }
            _ = OpenSSLCall.attempt { SSL_do_handshake(ssl) }
            var block = [UInt8](repeating: 0, count: 65_536)
            let count = BIO_read(output, &block, Int32(block.count))
            if count > 0 { block.prefix(Int(count)).withUnsafeBytes { client.received.append($0) } }
            answer = client.handshake()
        }
        return answer
    }
}

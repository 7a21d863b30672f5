import COpenSSL
import SocketBuffers
import SocketTLS

/// A bare OpenSSL peer on memory BIOs that can do what our own engine never does.
final class RawPeer {
    /// Nil if the connection uses another object's context.
    private let context: OpaquePointer?
    let ssl: OpaquePointer
    private let input: OpaquePointer
    private let output: OpaquePointer
    private var replacement: (old: [UInt8], new: [UInt8])?
    /// The number of NewSessionTicket messages received since `countTickets()`, which `client(of:)` calls.
    var tickets = 0
    /// The numbers of the server's extensions, after `noteExtensions()`.
    var extensions: [Int32] = []
    /// The first fatal alert received during the handshake.
    private(set) var alertInHandshake: TLSAlert?

    /// Creates a client that trusts every certificate, or a server. `customExtension` is the number of a
    /// meaningless extension to send.
    init(_ version: TLSProtocolVersion, serverPEM: String? = nil, clientPEM: String? = nil, customExtension: UInt32? = nil) throws
    {
        guard let context = SSL_CTX_new(serverPEM == nil ? TLS_client_method() : TLS_server_method()),
            customExtension.map({ Self.send($0, from: context) }) ?? true, let ssl = SSL_new(context),
            let input = BIO_new(BIO_s_mem()), let output = BIO_new(BIO_s_mem())
        else { throw TestFailure(what: "raw peer") }
        self.context = context
        self.ssl = ssl
        self.input = input
        self.output = output
        SSL_set_bio(ssl, input, output)
        let wanted = version == .tls12 ? TLS1_2_VERSION : TLS1_3_VERSION
        SSL_ctrl(ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(wanted), nil)
        SSL_ctrl(ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(wanted), nil)
        if let pem = serverPEM ?? clientPEM { try show(pem) }
        if serverPEM == nil { SSL_set_connect_state(ssl) } else { SSL_set_accept_state(ssl) }
    }

    /// Creates the server side of a connection from another context.
    init(serving connection: OpaquePointer?) throws {
        guard let connection, let input = BIO_new(BIO_s_mem()), let output = BIO_new(BIO_s_mem()) else {
            throw TestFailure(what: "raw peer")
        }
        (context, ssl, self.input, self.output) = (nil, connection, input, output)
        SSL_set_bio(ssl, input, output)
        SSL_set_accept_state(ssl)
    }

    deinit {
        SSL_free(ssl)
        SSL_CTX_free(context)
    }

    /// In a ClientHello and in a TLS 1.3 CertificateRequest.
    private static func send(_ customExtension: UInt32, from context: OpaquePointer) -> Bool {
        SSL_CTX_add_custom_ext(
            context, customExtension, UInt32(SSL_EXT_CLIENT_HELLO | SSL_EXT_TLS1_3_CERTIFICATE_REQUEST),
            { _, _, _, _, count, _, _, _, _ in
                count?.pointee = 0
                return 1
            }, nil, nil, nil, nil) == 1
    }

    /// Makes a server request a certificate and accept any or none.
    func askForCertificate() {
        SSL_set_verify(ssl, SSL_VERIFY_PEER, { _, _ in 1 })
    }

    private func show(_ pem: String) throws {
        let isUsed = Self.readIdentity(pem) { SSL_use_certificate(ssl, $0) == 1 && SSL_use_PrivateKey(ssl, $1) == 1 }
        guard isUsed else { throw TestFailure(what: "use") }
    }

    /// Calls `use` with the first certificate and the first key in a PEM text.
    static func readIdentity(_ pem: String, _ use: (OpaquePointer?, OpaquePointer?) -> Bool) -> Bool {
        let (certificate, key) = Array(pem.utf8).withUnsafeBytes { bytes in
            // This kind of BIO reads from the caller's memory.
            let bio = BIO_new_mem_buf(bytes.baseAddress, Int32(bytes.count))
            defer { BIO_free(bio) }
            return (PEM_read_bio_X509(bio, nil, nil, nil), PEM_read_bio_PrivateKey(bio, nil, nil, nil))
        }
        defer {
            X509_free(certificate)
            EVP_PKEY_free(key)
        }
        return use(certificate, key)
    }

    /// - Parameter decide: Makes a trust decision. If nil, no decision is made.
    func shakeHands(with engine: TLSEngine, _ decide: ((PeerTrust) -> Bool)? = nil) {
        for _ in 0..<20 {
            ERR_clear_error()
            SSL_do_handshake(ssl)
            alertInHandshake = alertInHandshake ?? lastAlert().map { TLSAlert(rawValue: $0) }
            carryTo(engine)
            if case .awaitingTrust(let trust) = engine.handshake(), let decide {
                engine.decideTrust(decide(trust))
                _ = engine.handshake()
            }
            carryFrom(engine)
        }
    }

    func carryTo(_ engine: TLSEngine) {
        var bytes = takeOutput()
        if let (old, new) = replacement, let range = bytes.firstRange(of: old) { bytes.replaceSubrange(range, with: new) }
        engine.receive(bytes)
    }

    /// Replaces these bytes in the output before the engine receives it.
    func replace(_ old: [UInt8], by new: [UInt8]) {
        replacement = (old, new)
    }

    func takeOutput() -> [UInt8] {
        var taken: [UInt8] = []
        var block = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = BIO_read(output, &block, Int32(block.count))
            guard count > 0 else { return taken }
            taken += block.prefix(Int(count))
        }
    }

    func carryFrom(_ engine: TLSEngine) {
        let bytes = Array(engine.output.readableBytes)
        engine.output.consume(bytes.count)
        receive(bytes)
    }

    func receive(_ bytes: [UInt8]) {
        if !bytes.isEmpty { BIO_write(input, bytes, Int32(bytes.count)) }
    }

    /// Sends a KeyUpdate that requests a response.
    func sendKeyUpdate() {
        ERR_clear_error()
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED)
        SSL_do_handshake(ssl)
    }

    func send(_ text: String) {
        ERR_clear_error()
        SSL_write(ssl, Array(text.utf8), Int32(text.utf8.count))
    }

    /// Returns the received data, or nil if there was only an alert or nothing.
    func read() -> String? {
        ERR_clear_error()
        var block = [UInt8](repeating: 0, count: 65_536)
        let count = SSL_read(ssl, &block, Int32(block.count))
        return count > 0 ? String(decoding: block.prefix(Int(count)), as: UTF8.self) : nil
    }

    /// Returns the issuers in the server's certificate request.
    func acceptedIssuers() -> [String] {
        let names = SSL_get0_peer_CA_list(ssl)
        return (0..<OPENSSL_sk_num(names)).map { index in
            let text = X509_NAME_oneline(OpaquePointer(OPENSSL_sk_value(names, index)), nil, 0)
            defer { COpenSSL_free(text) }
            return text.map { String(cString: $0) } ?? ""
        }
    }

    /// Returns the alert reported by the last failed call.
    func lastAlert() -> UInt8? {
        let reason = Int32(ERR_GET_REASON(ERR_peek_last_error()))
        return reason > 1000 && reason < 1256 ? UInt8(reason - 1000) : nil
    }
}

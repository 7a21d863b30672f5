// The C callbacks of a context. Each callback looks up its engine's facts from the SSL, records a fact, and
// returns. It performs no I/O on the same SSL and runs no user code. (Keys are looked up in separate
// callbacks: see `SessionTickets` and `PreSharedKeyCallbacks`.)

internal import COpenSSL

enum EngineCallbacks {
    /// - Parameter judgesClients: Whether this is a server that requests certificates and may have to reject
    ///   them.
    static func install(on context: OpaquePointer, judgesClients: Bool) throws(TLSError) {
        installVerification(on: context)
        installObservation(on: context)
        if judgesClients { try installRefusal(on: context) }
    }

    // MARK: - Finding the facts of an SSL

    // An SSL has no unused pointer, and ex_data would cost 0.1 KiB per connection. Its BIO has two pointers.
    // The first refers to the `EngineBIO`, which moves bytes and has no access to the facts. The second is
    // for callbacks and refers to the facts.

    /// Makes `facts` available to the callbacks of `ssl`. The caller keeps the object alive until it sets
    /// `nil`.
    static func setFacts(_ facts: Facts?, of ssl: OpaquePointer) {
        guard let bio = SSL_get_rbio(ssl) else { return }
        let pointer = facts.map { Unmanaged.passUnretained($0).toOpaque().assumingMemoryBound(to: CChar.self) }
        BIO_set_callback_arg(bio, pointer)
    }

    static func facts(of ssl: OpaquePointer?) -> Facts? {
        guard let ssl, let bio = SSL_get_rbio(ssl), let pointer = BIO_get_callback_arg(bio) else { return nil }
        return Unmanaged<Facts>.fromOpaque(pointer).takeUnretainedValue()
    }

    // MARK: - Verification

    private static func installVerification(on context: OpaquePointer) {
        SSL_CTX_set_cert_verify_callback(context, { store, _ in EngineCallbacks.verify(store) }, nil)
    }

    private static func verify(_ store: OpaquePointer?) -> Int32 {
        guard let store, let data = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()) else { return 0 }
        let ssl = OpaquePointer(data)
        guard let facts = facts(of: ssl) else { return 0 }
        let judge = facts.judge
        if let ruling = judge.gate.ruling ?? COpenSSL_rawKey(store).map({ judge.judgeKey($0, in: store) })
            ?? judge.gate.rulingWithoutKey
        {
            return judge.apply(ruling, to: store, on: ssl)
        }
        if !judge.isServer, VerificationCost.isHigh(X509_STORE_CTX_get0_untrusted(store), judge.rules), !facts.mayCompute() {
            return judge.apply(.undecided, to: store, on: ssl)
        }
        return judge.apply(judge.judgeChain(in: store, of: ssl), to: store, on: ssl)
    }

    // MARK: - Resumption

    /// Makes OpenSSL report the sessions that a server offers to a client.
    static func reportSessions(of context: OpaquePointer) {
        SSL_CTX_clear_options(context, COpenSSL_noTicketOption())
        COpenSSL_CTX_reportClientSessions(context)
        // Returning 1 means that the callback keeps the reference.
        SSL_CTX_sess_set_new_cb(context) { ssl, session in
            guard let ssl, let session, let facts = EngineCallbacks.facts(of: ssl), let resumption = facts.judge.resumption
            else { return 0 }
            facts.hasNewSession = true
            resumption.received(session, from: ssl)
            return 1
        }
    }

    // MARK: - Slow computations

    /// Makes OpenSSL stop before it presents a certificate and signs. It does not stop when it resumes a
    /// session.
    static func stopBeforeSigning(on context: OpaquePointer) {
        SSL_CTX_set_cert_cb(
            context,
            { ssl, _ in
                guard let ssl, let facts = EngineCallbacks.facts(of: ssl) else { return 0 }
                return facts.mayCompute() ? 1 : -1
            }, nil)
    }

    // MARK: - Observation

    private static func installObservation(on context: OpaquePointer) {
        SSL_CTX_set_info_callback(context) { ssl, place, value in
            guard place & SSL_CB_ALERT != 0, let facts = EngineCallbacks.facts(of: ssl) else { return }
            let alert = TLSAlert(rawValue: UInt8(truncatingIfNeeded: value))
            facts.sawAlert(alert, isFatal: value >> 8 == SSL3_AL_FATAL, isOurs: place & SSL_CB_WRITE != 0)
        }
        COpenSSL_CTX_setMessageCallback(context) { isOurs, version, contentType, bytes, count, ssl, _ in
            guard count > 0, let bytes else { return }
            guard isOurs == 0 else { return EngineCallbacks.noteAnswer(bytes, count, contentType, ssl) }
            if version == SSL2_VERSION { return EngineCallbacks.refuseOldHello(bytes, ssl) }
            guard contentType == SSL3_RT_HANDSHAKE else { return }
            guard let ssl, let facts = EngineCallbacks.facts(of: ssl) else { return }
            let type = bytes.load(as: UInt8.self)
            facts.sawHandshakeMessage(type, version: version)
            let message = facts.bio.message(UnsafeRawBufferPointer(start: bytes, count: count))
            switch type {
            case UInt8(SSL3_MT_CLIENT_HELLO):
                facts.bio.handshakeByteCount = 0
                facts.sawClientHello(message)
                EngineCallbacks.limitHello(message, facts)
            case UInt8(SSL3_MT_SERVER_HELLO):
                facts.serverHelloCount += 1
                if facts.judge.stopsAtServerHello { facts.bio.isHeld = true }
            case UInt8(SSL3_MT_CERTIFICATE_REQUEST): facts.noteCertificateRequest()
            case UInt8(SSL3_MT_ENCRYPTED_EXTENSIONS) where facts.serverHelloCount > 1: facts.refuseLateEarlyData(in: message)
            case UInt8(SSL3_MT_CERTIFICATE):
                EngineCallbacks.limitCertificates(in: message, isTLS13: version == TLS1_3_VERSION, of: ssl, facts)
            case EngineCallbacks.compressedCertificate: EngineCallbacks.refuseCompression(message)
            default: break
            }
        }
    }

    // OpenSSL is about to decode these messages in its own memory, and a callback has no means to stop it. A
    // message that would cost too much is corrupted, so that OpenSSL rejects it early.

    /// Rejects a ClientHello in SSL 2.0 format, which has no extensions. TLS 1.2 and 1.3 clients do not need
    /// this format, and RFC 8446, appendix D.5, advises against it.
    private static func refuseOldHello(_ message: UnsafeRawPointer, _ ssl: OpaquePointer?) {
        // OpenSSL checks the message type again after this callback.
        UnsafeMutableRawPointer(mutating: message).storeBytes(of: 0xFF, as: UInt8.self)
        facts(of: ssl)?.complaintAboutHello = "it is in SSL 2.0 format"
    }

    private static func noteAnswer(_ bytes: UnsafeRawPointer, _ count: Int, _ contentType: Int32, _ ssl: OpaquePointer?) {
        guard contentType == SSL3_RT_HANDSHAKE, bytes.load(as: UInt8.self) == UInt8(SSL3_MT_SERVER_HELLO) else { return }
        facts(of: ssl)?.sentServerHello(UnsafeRawBufferPointer(start: bytes, count: count))
    }

    private static func limitHello(_ message: UnsafeRawBufferPointer, _ facts: Facts) {
        guard let complaint = complaint(about: message, facts), message.count > ClientHelloMessage.sessionIdentifier else {
            return
        }
        // A session identifier has at most 32 bytes.
        UnsafeMutableRawBufferPointer(mutating: message)[ClientHelloMessage.sessionIdentifier] = 0xFF
        facts.complaintAboutHello = complaint
    }

    private static func complaint(about hello: UnsafeRawBufferPointer, _ facts: Facts) -> String? {
        if let excess = ClientHelloMessage(hello, hasCookie: facts.bio.records != nil).excess {
            return "it contains too many \(excess)"
        }
        return facts.complaintAboutChange(in: hello)
    }

    /// Rejects a message with too many certificates, or with a key on a curve that has explicit parameters
    /// instead of a name. Such a key can take a fifth of a second to decode.
    private static func limitCertificates(
        in message: UnsafeRawBufferPointer, isTLS13: Bool, of ssl: OpaquePointer, _ facts: Facts
    ) {
        let limit = Int(SSL_get_verify_depth(ssl))
        let certificates = CertificateMessage(message, isTLS13: isTLS13)
        if let first = certificates.startOfFirst(whenMoreThan: limit) {
            let verdict = PeerTrust.Verdict.untrusted(
                reason: "the peer sent more than \(limit) certificates: raise maximumCertificateChainLength to accept them",
                code: X509_V_ERR_CERT_CHAIN_TOO_LONG, depth: limit)
            UnsafeMutableRawBufferPointer(mutating: message)[first] = 0
            facts.judge.refuse([], verdict)
        } else if certificates.describesCurve, let first = certificates.startOfFirst(whenMoreThan: 0) {
            let verdict = PeerTrust.Verdict.untrusted(
                reason: "the peer sent a certificate with a key on an unnamed curve",
                code: X509_V_ERR_EC_KEY_EXPLICIT_PARAMS, depth: 0)
            UnsafeMutableRawBufferPointer(mutating: message)[first] = 0
            facts.judge.refuse([], verdict)
        }
    }

    /// `SSL3_MT_COMPRESSED_CERTIFICATE`, which the headers of OpenSSL 3.0 lack (RFC 8879, section 4).
    private static let compressedCertificate: UInt8 = 25

    /// Rejects a compressed certificate, because our limits do not apply to it. The algorithm is overwritten
    /// with a private-use number that OpenSSL does not support. The context's options already prevent OpenSSL
    /// from offering compression, so OpenSSL normally rejects such a message before this is called.
    private static func refuseCompression(_ message: UnsafeRawBufferPointer) {
        for index in 4..<min(6, message.count) { UnsafeMutableRawBufferPointer(mutating: message)[index] = 0xFF }
    }

    // MARK: - Refusal

    /// Allows a TLS 1.3 server to send an alert after its handshake, for which OpenSSL has no function. To do
    /// so, this registers a session ticket extension that is never added to a ticket, but can make OpenSSL
    /// fail with any alert. The extension number, 0xFF5A, is for private use (RFC 8446, 11), so a client may
    /// send it with another meaning. The extension is therefore also registered for the ClientHello, where it
    /// is ignored: OpenSSL rejects an extension in a message for which it is not registered.
    private static func installRefusal(on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_add_custom_ext") {
            SSL_CTX_add_custom_ext(
                context, 0xFF5A, UInt32(SSL_EXT_TLS1_3_ONLY | SSL_EXT_CLIENT_HELLO | SSL_EXT_TLS1_3_NEW_SESSION_TICKET),
                { ssl, _, _, _, _, _, _, alert, _ in
                    guard let refusal = EngineCallbacks.facts(of: ssl)?.alertInsteadOfTicket else { return 0 }
                    alert?.pointee = Int32(refusal.rawValue)
                    return -1
                }, nil, nil, nil, nil)
        }
    }
}

// Rules for exporting:
//  1. Any thread may export. The engine has one user at a time, so it lends its `SSL` to the exporter from
//     the end of the handshake until the `SSL` is freed, and excludes exports during its own calls
//     (`excluding`).
//  2. The lock is held for one OpenSSL call, about as long as a few records take. When a client presents its
//     certificate after the handshake, the lock is held while the signature is created or verified. No user
//     code runs while the lock is held: session stores and sources of ticket keys are called before or after.
//  3. TLS 1.2 without the extended master secret exports no keys: two connections could agree on the same
//     keys (RFC 7627, section 5.4, and the triple handshake attack).

internal import COpenSSL
internal import SocketBuffers

/// Derives keys and channel bindings from an established connection. Copies may be used on any thread.
package struct KeyExporter: Sendable {
    /// `nil` before the handshake is complete, and after the connection closes.
    private let ssl = Locked<OpaquePointer?>(nil)

    package enum Failure: Error {
        case ended
        /// The caller's argument is invalid, for the given reason.
        case badParameter(String)
        indirect case unavailable(TLSError)
    }

    init() {}

    func lend(_ ssl: OpaquePointer) {
        self.ssl.withLock { $0 = ssl }
    }

    /// When this returns, `ssl` is no longer used for exports.
    func withdraw() {
        ssl.withLock { $0 = nil }
    }

    /// Runs an engine call that may change the `SSL`, and excludes exports for its duration.
    @inline(__always)
    func excluding<Result>(_ body: () -> Result) -> Result {
        ssl.withLock { _ in body() }
    }

    package func channelBinding(_ kind: TLSChannelBinding) throws(Failure) -> [UInt8] {
        switch kind {
        case .tlsExporter: try keyingMaterial(label: "EXPORTER-Channel-Binding", context: [], length: 32)
        case .tlsServerEndPoint: try serverEndPoint()
        case .tlsUnique: try firstFinished()
        }
    }

    /// Returns keying material (RFC 5705; RFC 8446, section 7.5). In TLS 1.2, a `nil` context and an empty
    /// context give different results.
    package func keyingMaterial(label: String, context: [UInt8]?, length: Int) throws(Failure) -> [UInt8] {
        // The maximum length of a key label in addition to "tls13 " (RFC 8446, section 7.1).
        guard (1...249).contains(label.utf8.count) else {
            throw .badParameter("the label must be 1 to 249 bytes long, but is \(label.utf8.count)")
        }
        // The limit of TLS 1.2 (RFC 5705, section 4).
        guard (context?.count ?? 0) <= 0xFFFF else {
            throw .badParameter("the context must be at most 65,535 bytes long, but is \(context?.count ?? 0)")
        }
        return try asking { ssl throws(Failure) in
            try Self.requireExtendedMasterSecret(of: ssl, for: "keying material")
            // The limit of HKDF (RFC 5869, section 2.3).
            let limit = 255 * Int(EVP_MD_get_size(SSL_CIPHER_get_handshake_digest(SSL_get_current_cipher(ssl))))
            guard length > 0, length <= limit else {
                throw .badParameter("the length must be from 1 to \(limit), but is \(length)")
            }
            return try Self.export(label, context, length, from: ssl)
        }
    }

    private func asking<Value>(_ body: (OpaquePointer) throws(Failure) -> Value) throws(Failure) -> Value {
        try ssl.withLock { ssl throws(Failure) in
            guard let ssl else { throw .ended }
            return try body(ssl)
        }
    }

    /// The combined length of label and context that every OpenSSL version accepts in TLS 1.2: 1,024 bytes
    /// minus the two random values and the context's length field. OpenSSL 3.0 accepts no more.
    private static let shortInput = 1024 - 66

    private static func export(
        _ label: String, _ context: [UInt8]?, _ length: Int, from ssl: OpaquePointer
    ) throws(Failure) -> [UInt8] {
        var material = [UInt8](repeating: 0, count: length)
        let (isDone, errors) = OpenSSLCall.attempt {
            SSL_export_keying_material(
                ssl, &material, length, label, label.utf8.count, context, context?.count ?? 0, context == nil ? 0 : 1) == 1
                ? true : nil
        }
        if isDone == true { return material }
        if errors.contains(where: { $0.isFromSSL && $0.reason == SSL_R_TLS_ILLEGAL_EXPORTER_LABEL }) {
            throw .badParameter("the label \"\(label.printable)\" is reserved for TLS")
        }
        if TLSProtocolVersion(of: ssl) < .tls13, label.utf8.count + (context?.count ?? 0) > shortInput {
            throw .badParameter("with TLS 1.2, this OpenSSL allows at most \(shortInput) bytes for label and context together")
        }
        throw .unavailable(
            TLSError(
                .internalError, "OpenSSL cannot export keying material", operation: "SSL_export_keying_material",
                openSSLStack: errors.map(\.text)))
    }

    // MARK: - RFC 5929 bindings

    /// Returns the digest of the server's certificate: the local certificate on a server, or the peer's
    /// certificate on a client.
    private func serverEndPoint() throws(Failure) -> [UInt8] {
        let certificate = try asking { ssl throws(Failure) in
            // A certificate that the server did not present is not bound to this connection.
            let isShown = TLSProof.showsCertificate(ssl)
            let x509 = !isShown ? nil : SSL_is_server(ssl) == 1 ? SSL_get_certificate(ssl) : SSL_get0_peer_certificate(ssl)
            guard let x509 else { throw Self.unavailable("the server has no certificate", "SSL_get_certificate") }
            return TLSCertificate(sharing: x509)
        }
        guard let digest = certificate.serverEndPointDigest else {
            throw Self.unavailable(
                "the signature algorithm of \"\(certificate.displayName)\" has no digest, so tls-server-end-point is undefined (RFC 5929, 4.1)",
                "X509_get_signature_info")
        }
        return digest
    }

    /// The first Finished message of the handshake: the client's, or the server's if the session was resumed.
    private func firstFinished() throws(Failure) -> [UInt8] {
        try asking { ssl throws(Failure) in
            guard TLSProtocolVersion(of: ssl) < .tls13 else {
                throw Self.unavailable("TLS 1.3 has no tls-unique binding (RFC 8446, C.5)", "SSL_get_finished")
            }
            try Self.requireExtendedMasterSecret(of: ssl, for: "the tls-unique binding")
            let isOurs = (SSL_is_server(ssl) == 1) == (SSL_session_reused(ssl) == 1)
            var message = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
            let count =
                isOurs
                ? SSL_get_finished(ssl, &message, message.count) : SSL_get_peer_finished(ssl, &message, message.count)
            return Array(message.prefix(count))
        }
    }

    // MARK: - Extended master secret (rule 3)

    private static func requireExtendedMasterSecret(of ssl: OpaquePointer, for purpose: String) throws(Failure) {
        guard TLSProtocolVersion(of: ssl) < .tls13, COpenSSL_hasExtendedMasterSecret(ssl) != 1 else { return }
        throw unavailable(
            "with TLS 1.2, \(purpose) requires the extended master secret, which the peer does not support (RFC 7627, 5.4)",
            "SSL_get_extms_support")
    }

    private static func unavailable(_ message: String, _ operation: String) -> Failure {
        .unavailable(TLSError(.bindingUnavailable, message, operation: operation))
    }
}

extension TLSCertificate {
    /// The digest for `tls-server-end-point`, or `nil` if the signature does not use a single digest.
    fileprivate var serverEndPointDigest: [UInt8]? {
        var kind: Int32 = NID_undef
        // This also handles the digest in RSA-PSS parameters.
        guard X509_get_signature_info(handle.x509, &kind, nil, nil, nil) == 1 else { return nil }
        if kind == NID_md5 || kind == NID_sha1 { kind = NID_sha256 }
        guard kind != NID_undef, let digest = OBJ_nid2sn(kind).flatMap({ EVP_get_digestbyname($0) }) else { return nil }
        var bytes = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        guard X509_digest(handle.x509, digest, &bytes, &count) == 1 else { return nil }
        return Array(bytes.prefix(Int(count)))
    }
}

/// A kind of channel binding (RFC 5056): a value that only the two ends of one TLS connection share.
///
/// An authentication mechanism that includes the binding, such as SCRAM-SHA-256-PLUS (RFC 7677), fails if a
/// man in the middle relays it from one connection to another. The raw value is the name registered with
/// IANA.
public enum TLSChannelBinding: String, Sendable, Hashable, CaseIterable {
    /// 32 bytes that both sides derive from the handshake (RFC 9266). Prefer this kind.
    ///
    /// Available with TLS 1.3, and with TLS 1.2 if the extended master secret (RFC 7627) was negotiated.
    case tlsExporter = "tls-exporter"
    /// The digest of the server's certificate (RFC 5929, section 4).
    ///
    /// The digest algorithm is the one in the certificate's signature, except that SHA-256 replaces MD5 and
    /// SHA-1. If the certificate's signature has no separate digest, as with Ed25519, this kind is not
    /// available. This kind protects less than the other kinds: it also matches if a proxy with the same
    /// certificate terminates TLS.
    case tlsServerEndPoint = "tls-server-end-point"
    /// The first Finished message of the handshake (RFC 5929, section 3).
    ///
    /// Available only with TLS 1.2 and the extended master secret. TLS 1.3 does not define it (RFC 8446,
    /// appendix C.5).
    case tlsUnique = "tls-unique"
}

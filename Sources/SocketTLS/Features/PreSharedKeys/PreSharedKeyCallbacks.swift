// Rules for external pre-shared keys:
//  1. The keys are part of the context, and therefore of the settings that were selected for the client's
//     server name (SNI).
//  2. TLS 1.3 has separate callbacks, which use sessions. OpenSSL would also call the TLS 1.2 callbacks in
//     TLS 1.3, but they do not specify a hash algorithm and truncate an identity at a zero byte. Each
//     callback therefore returns a key only for its own version.
//  3. A server reads all identities of a ClientHello before OpenSSL does, because OpenSSL looks up one
//     identity at a time. This makes an unknown identity fail in the same way as a wrong key, and lets
//     the server skip a key without a valid binder (`PreSharedKeyNegotiation.look`, `KeyBinders`).
//  4. The callbacks never accept a peer. When OpenSSL's handshake is complete, the key is passed to the
//     trust gate as evidence (`Judge.judgeEvidence`).
//  5. After a handshake with such a key, the server issues no ticket and the client resumes no session.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

extension TLSPreSharedKeys {
    /// Lets OpenSSL look up a server's keys, and a client's key.
    static func install(on context: OpaquePointer, isServer: Bool, allowsTLS12: Bool) {
        if isServer {
            PreSharedKeyCallbacks.readIdentities(on: context)
            SSL_CTX_set_psk_find_session_callback(context) { ssl, identity, count, session in
                PreSharedKeyCallbacks.find(UnsafeBufferPointer(start: identity, count: count), ssl, session)
            }
            guard allowsTLS12 else { return }
            SSL_CTX_set_psk_server_callback(context) { ssl, identity, buffer, room in
                PreSharedKeyCallbacks.findForTLS12(identity, ssl, UnsafeMutableRawBufferPointer(start: buffer, count: Int(room)))
            }
        } else {
            SSL_CTX_set_psk_use_session_callback(context) { ssl, digest, identity, count, session in
                PreSharedKeyCallbacks.offer(ssl, digest, identity, count, session)
            }
            guard allowsTLS12 else { return }
            SSL_CTX_set_psk_client_callback(context) { ssl, _, identity, limit, buffer, room in
                PreSharedKeyCallbacks.offerForTLS12(
                    ssl, UnsafeMutableRawBufferPointer(start: identity, count: Int(limit)),
                    UnsafeMutableRawBufferPointer(start: buffer, count: Int(room)))
            }
        }
    }
}

private enum PreSharedKeyCallbacks {
    private static func negotiation(of ssl: OpaquePointer?) -> PreSharedKeyNegotiation? {
        EngineCallbacks.facts(of: ssl)?.preSharedKeys
    }

    // MARK: - Clients

    /// Returns 0 on failure.
    static func offer(
        _ ssl: OpaquePointer?, _ digest: OpaquePointer?, _ identity: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
        _ count: UnsafeMutablePointer<Int>?, _ session: UnsafeMutablePointer<OpaquePointer?>?
    ) -> Int32 {
        guard let ssl, let identity, let count, let session, let key = negotiation(of: ssl)?.offer(inTLS12: false) else {
            return 0
        }
        // After a HelloRetryRequest, the cipher suite and its hash algorithm are fixed.
        if let digest, EVP_MD_get_type(digest) != key.hash.digest { return 0 }
        // The pointer stays valid because the engine retains the context, which owns the key.
        identity.pointee = UnsafePointer(key.stableIdentity.keptBytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
        count.pointee = key.identity.count
        session.pointee = PreSharedKeyNegotiation.session(with: key, for: ssl)
        return session.pointee == nil ? 0 : 1
    }

    /// Returns the length of the key, or 0 on failure.
    static func offerForTLS12(
        _ ssl: OpaquePointer?, _ identity: UnsafeMutableRawBufferPointer, _ buffer: UnsafeMutableRawBufferPointer
    ) -> UInt32 {
        // Not called in TLS 1.3, because the callback for TLS 1.3 has already returned a session.
        guard let ssl, let key = negotiation(of: ssl)?.offer(inTLS12: true), key.identity.count < identity.count else { return 0 }
        identity.copyBytes(from: key.identity)
        identity[key.identity.count] = 0
        return copy(key, to: buffer)
    }

    private static func copy(_ key: TLSPreSharedKey, to buffer: UnsafeMutableRawBufferPointer) -> UInt32 {
        guard key.secret.count <= buffer.count else { return 0 }
        key.secret.withBytes { buffer.copyMemory(from: $0) }
        return UInt32(key.secret.count)
    }

    // MARK: - Servers

    static func readIdentities(on context: OpaquePointer) {
        SSL_CTX_set_client_hello_cb(
            context,
            { ssl, _, _ in
                var start: UnsafePointer<UInt8>?
                var count = 0
                guard let ssl, SSL_client_hello_get0_ext(ssl, UInt32(TLSEXT_TYPE_psk), &start, &count) == 1 else {
                    return SSL_CLIENT_HELLO_SUCCESS
                }
                guard let negotiation = PreSharedKeyCallbacks.negotiation(of: ssl) else { return SSL_CLIENT_HELLO_ERROR }
                let list = PreSharedKeyList(UnsafeRawBufferPointer(start: start, count: count))
                negotiation.look(for: list, isLast: negotiation.keys.use == .required)
                return SSL_CLIENT_HELLO_SUCCESS
            }, nil)
    }

    /// Returns 0 on failure. If it returns 1 without a session, OpenSSL tries the next identity, or
    /// treats the bytes as a ticket.
    static func find(
        _ identity: UnsafeBufferPointer<UInt8>, _ ssl: OpaquePointer?, _ session: UnsafeMutablePointer<OpaquePointer?>?
    ) -> Int32 {
        guard let ssl, let session, let negotiation = negotiation(of: ssl) else { return 0 }
        session.pointee = nil
        guard let key = negotiation.key, key.identity.elementsEqual(identity) else { return 1 }
        session.pointee = PreSharedKeyNegotiation.session(with: key, for: ssl)
        return session.pointee == nil ? 0 : 1
    }

    /// Returns the length of the key, or 0 if the server has no key.
    static func findForTLS12(
        _ identity: UnsafePointer<CChar>?, _ ssl: OpaquePointer?, _ buffer: UnsafeMutableRawBufferPointer
    ) -> UInt32 {
        guard let ssl, let identity, TLSProtocolVersion(of: ssl) < .tls13, let negotiation = negotiation(of: ssl) else {
            return 0
        }
        // A cipher suite with a pre-shared key is already chosen, so certificates are no longer an
        // option.
        negotiation.lookInTLS12(for: Array(UnsafeRawBufferPointer(start: identity, count: strlen(identity))))
        return negotiation.key.map { copy($0, to: buffer) } ?? 0
    }
}

extension TLSPreSharedKey.HashAlgorithm {
    /// The NID that OpenSSL uses for the algorithm.
    fileprivate var digest: Int32 {
        switch self {
        case .sha256: NID_sha256
        case .sha384: NID_sha384
        }
    }
}

extension EngineFailure {
    /// The error for a failed handshake if the two sides do not have the same key; otherwise `nil`.
    var sharedKeyError: TLSError? {
        guard isInHandshake, let negotiation = facts.preSharedKeys, let key = negotiation.key else { return nil }
        let identity = "\"\(String(decoding: key.identity, as: UTF8.self).printable)\""
        if !facts.isServer {
            let refusals = negotiation.isOfTLS12 ? Self.refusalsOfTLS12 : Self.refusals
            guard let alert = entries.lazy.compactMap(\.peerAlert).first, refusals.contains(alert) else { return nil }
            var error = error(
                .preSharedKeyMismatch,
                "the server rejected the pre-shared key with the alert \(alert): it has no key with the identity \(identity), or its key differs"
            )
            error.alert = alert
            return error
        }
        // In TLS 1.2, a wrong key is first detected when the client's Finished cannot be decrypted.
        let isMismatch = has(SSL_R_BINDER_DOES_NOT_VERIFY)
        guard isMismatch || (negotiation.isOfTLS12 && has(SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC)) else { return nil }
        return error(
            .preSharedKeyMismatch,
            negotiation.isDecoy
                ? "this server has no pre-shared key for the client's identity \(identity)"
                : "the client and this server have different pre-shared keys for the identity \(identity)")
    }

    // The alerts that servers send for a wrong key or an unknown identity.

    /// The alerts from RFC 8446, 6.2, and illegal_parameter, which OpenSSL sends.
    private static let refusals: [TLSAlert] = [.unknownPSKIdentity, .decryptError, .illegalParameter]
    /// The alerts from RFC 4279, 2, and bad_record_mac, which a server sends if it cannot decrypt the
    /// client's Finished.
    private static let refusalsOfTLS12: [TLSAlert] = [.unknownPSKIdentity, .decryptError, .badRecordMAC]

    /// The error for a client without a usable key, if a key is required; otherwise `nil`.
    var missingKeyError: TLSError? {
        guard isInHandshake, facts.isServer, facts.preSharedKeys?.keys.use == .required,
            has(SSL_R_NO_SHARED_CIPHER) || has(SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM)
        else { return nil }
        return error(.preSharedKeyMissing, "the client offered no usable pre-shared key, but a key is required")
    }
}

extension KeyProof.Kind {
    static let preSharedKey = KeyProof.Kind(
        number: 2, isShared: true,
        missing: ProofFault(
            error: TLSError(.preSharedKeyMissing, "the peer did not use a pre-shared key, but the settings require one"),
            // OpenSSL maps this code to the alert handshake_failure.
            verifyCode: X509_V_ERR_APPLICATION_VERIFICATION))
}

extension TLSError.Code {
    /// The peer did not use a pre-shared key, but the settings require one.
    public static let preSharedKeyMissing = TLSError.Code("preSharedKeyMissing", fault: .peer)
    /// The two sides do not have the same pre-shared key: the server does not know the identity, or one
    /// of the keys is wrong.
    public static let preSharedKeyMismatch = TLSError.Code("preSharedKeyMismatch", fault: .peer)
}

internal import COpenSSL
internal import SocketBuffers

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

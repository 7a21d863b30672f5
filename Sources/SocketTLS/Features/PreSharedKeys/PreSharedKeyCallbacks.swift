// Rules of external pre-shared keys:
//  1. The keys belong to the context, and so to the settings that were chosen by name.
//  2. TLS 1.3 has callbacks of its own, with sessions; the ones of TLS 1.2, which OpenSSL would ask in TLS
//     1.3 too, know no hash algorithm and cut an identity at a zero. Each answers in its version only.
//  3. A server reads all identities of a ClientHello before OpenSSL does, because OpenSSL asks for one after
//     the other: only so an unknown one can fail like a wrong key, and a key that is not proved is passed
//     over (`PreSharedKeyNegotiation.look`, `KeyBinders`).
//  4. Nothing here accepts a peer. When OpenSSL's handshake is complete, the key is evidence for the trust
//     gate (`Judge.judgeEvidence`).
//  5. A connection with such a key gets no ticket, and a client with one resumes nothing.

internal import COpenSSL
internal import Glibc

enum PreSharedKeyCallbacks {
    static func install(on context: OpaquePointer, isServer: Bool, allowsTLS12: Bool) {
        if isServer {
            readIdentities(on: context)
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

    private static func negotiation(of ssl: OpaquePointer?) -> PreSharedKeyNegotiation? {
        EngineCallbacks.facts(of: ssl)?.preSharedKeys
    }

    // MARK: - Clients

    /// Returns 0 for a failure.
    private static func offer(
        _ ssl: OpaquePointer?, _ digest: OpaquePointer?, _ identity: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
        _ count: UnsafeMutablePointer<Int>?, _ session: UnsafeMutablePointer<OpaquePointer?>?
    ) -> Int32 {
        guard let ssl, let identity, let count, let session, let key = negotiation(of: ssl)?.offer(inTLS12: false) else {
            return 0
        }
        // A server that asks for another ClientHello has chosen a cipher suite already.
        if let digest, EVP_MD_get_type(digest) != key.hash.digest { return 0 }
        // The context, which the engine holds, keeps the key.
        identity.pointee = UnsafePointer(key.stableIdentity.keptBytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
        count.pointee = key.identity.count
        session.pointee = PreSharedKeyNegotiation.session(with: key, for: ssl)
        return session.pointee == nil ? 0 : 1
    }

    /// Returns the length of the key, or 0 for a failure.
    private static func offerForTLS12(
        _ ssl: OpaquePointer?, _ identity: UnsafeMutableRawBufferPointer, _ buffer: UnsafeMutableRawBufferPointer
    ) -> UInt32 {
        // In TLS 1.3 the other callback has answered.
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

    private static func readIdentities(on context: OpaquePointer) {
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

    /// Returns 0 for a failure; without a session OpenSSL asks for the next identity, or takes the bytes for
    /// a ticket.
    private static func find(
        _ identity: UnsafeBufferPointer<UInt8>, _ ssl: OpaquePointer?, _ session: UnsafeMutablePointer<OpaquePointer?>?
    ) -> Int32 {
        guard let ssl, let session, let negotiation = negotiation(of: ssl) else { return 0 }
        session.pointee = nil
        guard let key = negotiation.key, key.identity.elementsEqual(identity) else { return 1 }
        session.pointee = PreSharedKeyNegotiation.session(with: key, for: ssl)
        return session.pointee == nil ? 0 : 1
    }

    /// Returns the length of the key, or 0 for none.
    private static func findForTLS12(
        _ identity: UnsafePointer<CChar>?, _ ssl: OpaquePointer?, _ buffer: UnsafeMutableRawBufferPointer
    ) -> UInt32 {
        guard let ssl, let identity, TLSVersion(of: ssl) < .tls13, let negotiation = negotiation(of: ssl) else { return 0 }
        // The cipher suite is chosen, so that there is no other way any more.
        negotiation.lookInTLS12(for: Array(UnsafeRawBufferPointer(start: identity, count: strlen(identity))))
        return negotiation.key.map { copy($0, to: buffer) } ?? 0
    }
}

extension TLSPreSharedKey.HashAlgorithm {
    /// OpenSSL's number.
    fileprivate var digest: Int32 {
        switch self {
        case .sha256: NID_sha256
        case .sha384: NID_sha384
        }
    }
}

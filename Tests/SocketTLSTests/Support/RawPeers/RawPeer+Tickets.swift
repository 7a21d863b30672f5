import COpenSSL
import SocketTLS

extension RawPeer {
    /// Returns a client that has completed the handshake with `server`, and has read a byte and what was sent
    /// with it.
    static func client(
        _ version: TLSProtocolVersion = .tls13, of server: TLSEngine, resuming session: [UInt8]? = nil,
        named serverName: String? = nil, offering protocols: String = "", showing pem: String? = nil,
        deciding isAccepted: Bool? = nil, withKey: Bool = false
    ) throws -> RawPeer {
        let peer = try RawPeer(version, clientPEM: pem)
        if withKey { peer.offerKey() }
        if let session { try peer.resume(session) }
        if let serverName { _ = COpenSSL_setServerNameIndication(peer.ssl, serverName) }
        let list = protocols.split(separator: ",").flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
        SSL_set_alpn_protos(peer.ssl, list, UInt32(list.count))
        peer.countTickets()
        peer.shakeHands(with: server)
        if let isAccepted, server.isAwaitingTrust {
            server.decideTrust(isAccepted)
            _ = server.handshake()
            peer.shakeHands(with: server)
        }
        _ = [UInt8(ascii: "!")].withUnsafeBytes { server.write($0) }
        peer.carryFrom(server)
        guard peer.read() == "!" else { throw TestFailure(what: "the first byte") }
        guard server.handshake().isComplete, SSL_is_init_finished(peer.ssl) == 1 else { throw TestFailure(what: "handshake") }
        return peer
    }

    /// From now on, counts tickets in `tickets`.
    func countTickets() {
        SSL_set_msg_callback(ssl) { isOurs, _, contentType, bytes, _, _, peer in
            guard isOurs == 0, contentType == SSL3_RT_HANDSHAKE, bytes?.load(as: UInt8.self) == 4, let peer else { return }
            Unmanaged<RawPeer>.fromOpaque(peer).takeUnretainedValue().tickets += 1
        }
        // Not retained, because this object owns the connection.
        SSL_ctrl(ssl, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Collects the numbers of the server's extensions in `extensions`.
    func noteExtensions() {
        let callback:
            @convention(c) (OpaquePointer?, Int32, Int32, UnsafePointer<UInt8>?, Int32, UnsafeMutableRawPointer?) -> Void = {
                _, _, type, _, _, peer in
                guard let peer else { return }
                Unmanaged<RawPeer>.fromOpaque(peer).takeUnretainedValue().extensions.append(type)
            }
        SSL_callback_ctrl(ssl, SSL_CTRL_SET_TLSEXT_DEBUG_CB, unsafeBitCast(callback, to: (@convention(c) () -> Void).self))
        // Not retained, because this object owns the connection.
        SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_DEBUG_ARG, 0, Unmanaged.passUnretained(self).toOpaque())
    }

    var isResumed: Bool { SSL_session_reused(ssl) == 1 }

    /// Returns the session of the last ticket as a value, because freeing a connection that was not shut down
    /// would invalidate the session itself.
    func session() throws -> [UInt8] {
        var memory: UnsafeMutablePointer<UInt8>?
        let count = i2d_SSL_SESSION(SSL_get_session(ssl), &memory)
        defer { COpenSSL_free(memory) }
        guard count > 0 else { throw TestFailure(what: "session") }
        return Array(UnsafeBufferPointer(start: memory, count: Int(count)))
    }

    func resume(_ session: [UInt8]) throws {
        let parsed = session.withUnsafeBufferPointer { bytes in
            var place = bytes.baseAddress
            return d2i_SSL_SESSION(nil, &place, bytes.count)
        }
        defer { SSL_SESSION_free(parsed) }
        guard SSL_set_session(ssl, parsed) == 1 else { throw TestFailure(what: "SSL_set_session") }
    }

    /// Returns the last ticket itself, as sent over the wire.
    func ticket() -> [UInt8] {
        var bytes: UnsafePointer<UInt8>?
        var count = 0
        SSL_SESSION_get0_ticket(SSL_get_session(ssl), &bytes, &count)
        return Array(UnsafeBufferPointer(start: bytes, count: count))
    }

    /// The lifetime hint of the last ticket, in seconds.
    var ticketLifetime: UInt { SSL_SESSION_get_ticket_lifetime_hint(SSL_get_session(ssl)) }
}

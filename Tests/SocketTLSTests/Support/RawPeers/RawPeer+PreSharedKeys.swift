import COpenSSL
import SocketTLS

extension RawPeer {
    /// Makes a client offer the key of `PreSharedKeyFixture` as "alice", after a ticket if it has one.
    func offerKey() {
        SSL_set_psk_use_session_callback(ssl) { ssl, _, identity, count, session in
            let key = PreSharedKeyFixture.bytes
            let new = SSL_SESSION_new()
            SSL_SESSION_set1_master_key(new, key, key.count)
            SSL_SESSION_set_cipher(new, SSL_CIPHER_find(ssl, [0x13, 0x01]))
            SSL_SESSION_set_protocol_version(new, TLS1_3_VERSION)
            identity?.pointee = RawPeer.alice
            count?.pointee = 5
            session?.pointee = new
            return 1
        }
        SSL_set_psk_client_callback(ssl) { ssl, _, identity, _, buffer, _ in
            // OpenSSL also calls this in TLS 1.3.
            guard let identity, let buffer, !RawPeer.writesHello(ssl) else { return 0 }
            for index in 0..<5 { identity[index] = CChar(bitPattern: RawPeer.alice[index]) }
            identity[5] = 0
            for (index, byte) in PreSharedKeyFixture.bytes.enumerated() { buffer[index] = byte }
            return UInt32(PreSharedKeyFixture.bytes.count)
        }
    }

    /// Returns whether a client is writing its ClientHello. The numbers of states depend on OpenSSL's
    /// version.
    private static func writesHello(_ ssl: OpaquePointer?) -> Bool {
        SSL_state_string(ssl).map { String(cString: $0) } == "TWCH"
    }

    /// At a fixed address.
    nonisolated(unsafe) private static let alice: UnsafePointer<UInt8> = {
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 5)
        for (index, byte) in "alice".utf8.enumerated() { memory[index] = byte }
        return UnsafePointer(memory)
    }()
}

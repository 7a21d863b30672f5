import COpenSSL
import SocketTLS

/// Writes arbitrary TLS 1.2 records: endless warnings, empty records, and messages that OpenSSL would not
/// send.
///
/// Uses the keys of a handshake performed by OpenSSL (RFC 5246, 6.3; AES-256-GCM as in RFC 5288).
final class SealedRecords {
    private let key: [UInt8]
    private let salt: [UInt8]
    private var sequence: UInt64

    /// - Parameter sequence: The number of records that the peer has already encrypted. Its Finished is one.
    init(writingAs peer: RawPeer, isServer: Bool, sequence: UInt64 = 1) throws {
        var master = [UInt8](repeating: 0, count: 48)
        var (client, server) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: 32))
        guard SSL_SESSION_get_master_key(SSL_get_session(peer.ssl), &master, 48) == 48,
            SSL_get_client_random(peer.ssl, &client, 32) == 32, SSL_get_server_random(peer.ssl, &server, 32) == 32
        else { throw TestFailure(what: "secrets") }
        // Two keys of 32 bytes and two salts of 4.
        let block = Self.expand(secret: master, seed: Array("key expansion".utf8) + server + client, count: 72)
        key = Array(isServer ? block[32..<64] : block[0..<32])
        salt = Array(isServer ? block[68..<72] : block[64..<68])
        self.sequence = sequence
    }

    /// Returns one record of `type` with `content`.
    func record(_ type: UInt8, _ content: [UInt8]) throws -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0) }
        sequence += 1
        let header: [UInt8] = number + [type, 3, 3, UInt8(content.count >> 8), UInt8(content.count & 0xFF)]
        let context = EVP_CIPHER_CTX_new()
        defer { EVP_CIPHER_CTX_free(context) }
        var (sealed, tag, count) = ([UInt8](repeating: 0, count: content.count + 16), [UInt8](repeating: 0, count: 16), Int32(0))
        guard EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), nil, key, salt + number) == 1,
            EVP_EncryptUpdate(context, nil, &count, header, Int32(header.count)) == 1,
            content.isEmpty || EVP_EncryptUpdate(context, &sealed, &count, content, Int32(content.count)) == 1,
            EVP_EncryptFinal_ex(context, &sealed, &count) == 1 || content.isEmpty,
            EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, &tag) == 1
        else { throw TestFailure(what: "AES-GCM") }
        let body = number + sealed.prefix(content.count) + tag
        return [type, 3, 3, UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
    }

    /// P_SHA384 in RFC 5246, section 5.
    private static func expand(secret: [UInt8], seed: [UInt8], count: Int) -> [UInt8] {
        var (result, chain) = ([UInt8](), seed)
        while result.count < count {
            chain = hmac(secret, chain)
            result += hmac(secret, chain + seed)
        }
        return Array(result.prefix(count))
    }

    private static func hmac(_ key: [UInt8], _ data: [UInt8]) -> [UInt8] {
        var (digest, length) = ([UInt8](repeating: 0, count: 64), UInt32(0))
        _ = HMAC(EVP_sha384(), key, Int32(key.count), data, data.count, &digest, &length)
        return Array(digest.prefix(Int(length)))
    }
}

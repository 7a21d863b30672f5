internal import COpenSSL

/// Replaces the description in the alert that OpenSSL's TLS 1.2 or DTLS 1.2 server sends after its Finished.
///
/// OpenSSL cannot send an alert of our choice, and alerts are already encrypted at this point. So this type
/// decrypts OpenSSL's record with the connection's keys, and encrypts the new alert with the same record
/// number and nonce. Reusing the nonce is safe because OpenSSL's own record is never sent. CBC records are
/// sent unchanged.
struct SealedAlert {
    private let cipher: OpaquePointer
    private let isCCM: Bool
    private let tagSize: Int
    /// With GCM and CCM, the record contains the last part of the nonce (RFC 5288; RFC 6655). Otherwise the
    /// nonce is the record number combined with `salt` (RFC 7905).
    private let hasExplicitNonce: Bool
    private let key: SecretBytes
    private let salt: [UInt8]

    private static let nonceSize = 12
    private static let numberSize = 8
    private static let randomSize = 32
    private static let masterSize = 48

    /// Returns `nil` if the connection's cipher suite is not an AEAD suite.
    init?(writtenBy server: OpaquePointer) {
        guard let suite = SSL_get_current_cipher(server), SSL_CIPHER_is_aead(suite) == 1,
            let name = OBJ_nid2sn(SSL_CIPHER_get_cipher_nid(suite)), let cipher = EVP_get_cipherbyname(name),
            let digest = SSL_CIPHER_get_handshake_digest(suite)
        else { return nil }
        self.cipher = cipher
        hasExplicitNonce = SSL_CIPHER_get_cipher_nid(suite) != NID_chacha20_poly1305
        isCCM = EVP_CIPHER_get_mode(cipher) == EVP_CIPH_CCM_MODE
        tagSize = SSL_CIPHER_get_name(suite).map { String(cString: $0) }?.hasSuffix("CCM8") == true ? 8 : 16
        // The client's key, the server's key, the client's salt, the server's salt (RFC 5246, section 6.3).
        let keySize = Int(EVP_CIPHER_get_key_length(cipher))
        let saltSize = hasExplicitNonce ? Self.nonceSize - Self.numberSize : Self.nonceSize
        guard let block = Self.keyBlock(of: server, digest, count: 2 * (keySize + saltSize)) else { return nil }
        key = block.withBytes { SecretBytes(copying: $0[keySize..<2 * keySize]) }
        salt = block.withBytes { Array($0.suffix(saltSize)) }
    }

    /// Returns `record` with the alert `right` in place of `wrong`, or `nil` if `record` is not the fatal
    /// alert `wrong`, encrypted with these keys.
    func replace(_ wrong: TLSAlert, by right: TLSAlert, in record: [UInt8]) -> [UInt8]? {
        guard let parts = Parts(record, hasExplicitNonce: hasExplicitNonce, tagSize: tagSize) else { return nil }
        let fatal = AlertRecord.Level.fatal.rawValue
        let nonce = hasExplicitNonce ? salt + parts.explicitNonce : parts.nonce(mixedWith: salt)
        var tag = parts.tag
        guard crypt(parts.text, nonce, parts.authenticated, &tag, seals: false) == [fatal, wrong.rawValue],
            let text = crypt([fatal, right.rawValue], nonce, parts.authenticated, &tag, seals: true)
        else { return nil }
        return parts.header + parts.explicitNonce + text + tag
    }

    // MARK: - Record

    private struct Parts {
        let header: [UInt8]
        let explicitNonce: [UInt8]
        let text: [UInt8]
        let tag: [UInt8]
        private let number: [UInt8]

        private static let alert: UInt8 = 21
        private static let streamHeaderSize = 5
        /// With TLS, the alert is the second record that is encrypted with the server's keys, after the
        /// Finished. DTLS records contain their number.
        private static let numberInStream: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 1]

        init?(_ record: [UInt8], hasExplicitNonce: Bool, tagSize: Int) {
            guard record.first == Self.alert, record.count > 1 else { return nil }
            let isDatagram = record[1] == 0xFE
            let headerSize = isDatagram ? RecordHeader.size : Self.streamHeaderSize
            let nonceSize = hasExplicitNonce ? SealedAlert.numberSize : 0
            guard record.count == headerSize + nonceSize + 2 + tagSize else { return nil }
            header = Array(record[..<headerSize])
            explicitNonce = Array(record[headerSize..<headerSize + nonceSize])
            text = Array(record[headerSize + nonceSize..<record.count - tagSize])
            tag = Array(record.suffix(tagSize))
            number = isDatagram ? Array(record[3..<11]) : Self.numberInStream
        }

        /// RFC 5246, section 6.2.3.3: the sequence number, the type, the version, and the length of the
        /// plaintext.
        var authenticated: [UInt8] { number + header.prefix(3) + [0, UInt8(text.count)] }

        /// RFC 7905, section 2.
        func nonce(mixedWith salt: [UInt8]) -> [UInt8] {
            zip([0, 0, 0, 0] + number, salt).map { $0 ^ $1 }
        }
    }

    // MARK: - Keys and ciphers

    /// P_hash from RFC 5246, section 5. Returns `nil` if the session has no master secret.
    private static func keyBlock(of ssl: OpaquePointer, _ digest: OpaquePointer, count: Int) -> SecretBytes? {
        let master = SecretBytes(count: masterSize)
        var (client, server) = ([UInt8](repeating: 0, count: randomSize), [UInt8](repeating: 0, count: randomSize))
        guard let session = SSL_get_session(ssl), let start = master.writableBytes.bindMemory(to: UInt8.self).baseAddress,
            SSL_SESSION_get_master_key(session, start, masterSize) == masterSize,
            SSL_get_client_random(ssl, &client, randomSize) == randomSize,
            SSL_get_server_random(ssl, &server, randomSize) == randomSize
        else { return nil }
        let seed = Array("key expansion".utf8) + server + client
        let block = SecretBytes(count: count)
        var (chain, filled) = (seed, 0)
        while filled < count {
            guard let next = hmac(digest, master, chain), let part = hmac(digest, master, next + seed) else { return nil }
            let size = min(part.count, count - filled)
            UnsafeMutableRawBufferPointer(rebasing: block.writableBytes[filled..<filled + size]).copyBytes(
                from: part.prefix(size))
            (chain, filled) = (next, filled + size)
        }
        return block
    }

    private static func hmac(_ digest: OpaquePointer, _ key: SecretBytes, _ data: [UInt8]) -> [UInt8]? {
        var (code, count) = ([UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE)), UInt32(0))
        let isDone = key.withBytes { HMAC(digest, $0.baseAddress, Int32($0.count), data, data.count, &code, &count) != nil }
        return isDone ? Array(code.prefix(Int(count))) : nil
    }

    /// If `seals` is true, encrypts `text` and writes `tag`. Otherwise decrypts `text`, and returns `nil` if
    /// `tag` is wrong.
    private func crypt(_ text: [UInt8], _ nonce: [UInt8], _ authenticated: [UInt8], _ tag: inout [UInt8], seals: Bool) -> [UInt8]?
    {
        guard let context = EVP_CIPHER_CTX_new() else { return nil }
        defer { EVP_CIPHER_CTX_free(context) }
        let direction: Int32 = seals ? 1 : 0
        var (result, count) = ([UInt8](repeating: 0, count: text.count), Int32(0))
        let isDone: Bool = tag.withUnsafeMutableBytes { tag in
            func control(_ command: Int32, _ size: Int, _ memory: UnsafeMutableRawPointer?) -> Bool {
                EVP_CIPHER_CTX_ctrl(context, command, Int32(size), memory) == 1
            }
            func pass(_ input: [UInt8]?, to output: UnsafeMutablePointer<UInt8>?, _ size: Int) -> Bool {
                EVP_CipherUpdate(context, output, &count, input, Int32(size)) == 1
            }
            guard EVP_CipherInit_ex(context, cipher, nil, nil, nil, direction) == 1,
                control(EVP_CTRL_AEAD_SET_IVLEN, nonce.count, nil),
                // CCM needs the length of the tag in advance.
                seals && !isCCM || control(EVP_CTRL_AEAD_SET_TAG, tagSize, seals ? nil : tag.baseAddress),
                key.withBytes({ bytes in
                    EVP_CipherInit_ex(
                        context, nil, nil, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), nonce, direction) == 1
                }),
                // CCM also needs the length of the text, and checks the tag together with the text. Other
                // ciphers check it at the end.
                !isCCM || pass(nil, to: nil, text.count), pass(authenticated, to: nil, authenticated.count),
                result.withUnsafeMutableBufferPointer({ pass(text, to: $0.baseAddress, text.count) })
            else { return false }
            var rest: UInt8 = 0
            guard isCCM && !seals || EVP_CipherFinal_ex(context, &rest, &count) == 1 else { return false }
            return !seals || control(EVP_CTRL_AEAD_GET_TAG, tagSize, tag.baseAddress)
        }
        return isDone ? result : nil
    }
}

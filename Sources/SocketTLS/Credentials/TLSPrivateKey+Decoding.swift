internal import COpenSSL

extension TLSPrivateKey {
    init(_ text: SecretBytes, _ passphrase: PassphraseSource, source: String) throws(TLSError) {
        let rounds = try PEMReader(text, or: .invalidPrivateKey).roundsOfKeys()
        try KeyDerivation.check(KeyDerivation.sum(rounds), source, operation: "PEM_read_bio_PrivateKey")
        let (key, entries) = try PEMReader(text, passphrase: passphrase, or: .invalidPrivateKey).privateKey()
        guard let key else {
            throw passphrase.failure(
                encrypted: "\(source) contains an encrypted private key",
                otherwise: "\(source) \(text.complaint(expecting: "PEM-encoded private key"))",
                operation: "PEM_read_bio_PrivateKey", entries)
        }
        self.init(owning: key)
    }

    init(file path: String, _ passphrase: PassphraseSource) throws(TLSError) {
        let contents = try SecretBytes.contents(ofFile: path, or: .invalidPrivateKey)
        let source = "the file \"\(path.printable)\""
        if contents.isDER {
            try self.init(der: contents, passphrase, source: source)
        } else {
            try self.init(contents, passphrase, source: source)
        }
    }

    // MARK: - DER

    /// Reads a key in DER form.
    ///
    /// An encrypted key starts with an algorithm, and every other form starts with a version number. The form
    /// is therefore known before decryption.
    init(der: SecretBytes, _ passphrase: PassphraseSource, source: String) throws(TLSError) {
        let (isEncrypted, rounds) = der.withBytes { (Self.isEncrypted($0), KeyDerivation.rounds(ofKey: $0)) }
        try KeyDerivation.check(KeyDerivation.sum([rounds]), source, operation: "d2i_PKCS8PrivateKey_bio")
        let (key, entries) = der.withBytes { isEncrypted ? Self.decrypt($0, passphrase) : Self.decode($0) }
        guard let key else {
            throw passphrase.failure(
                encrypted: "\(source) contains an encrypted private key",
                otherwise: "\(source) \(der.kind?.description ?? "is not a DER-encoded private key")",
                operation: isEncrypted ? "d2i_PKCS8PrivateKey_bio" : "d2i_AutoPrivateKey", entries)
        }
        self.init(owning: key)
    }

    private static func isEncrypted(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return false }
        var cursor: UnsafePointer<UInt8>? = start
        guard let envelope = OpenSSLCall.attempt({ d2i_X509_SIG(nil, &cursor, bytes.count) }).value else { return false }
        X509_SIG_free(envelope)
        return cursor == start + bytes.count
    }

    private static func decrypt(
        _ bytes: UnsafeRawBufferPointer, _ passphrase: PassphraseSource
    ) -> (value: OpaquePointer?, errors: [OpenSSLError]) {
        OpenSSLCall.attempt {
            guard let count = Int32(exactly: bytes.count), let bio = BIO_new_mem_buf(bytes.baseAddress, count) else { return nil }
            defer { BIO_free(bio) }
            return d2i_PKCS8PrivateKey_bio(bio, nil, answerPassphrase, passphrase.argument)
        }
    }

    /// Also returns `nil` if further bytes follow the key.
    private static func decode(_ bytes: UnsafeRawBufferPointer) -> (value: OpaquePointer?, errors: [OpenSSLError]) {
        OpenSSLCall.attempt {
            guard let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return nil }
            var cursor: UnsafePointer<UInt8>? = start
            guard let key = d2i_AutoPrivateKey(nil, &cursor, bytes.count) else { return nil }
            if cursor == start + bytes.count { return key }
            EVP_PKEY_free(key)
            return nil
        }
    }

    // MARK: - URI

    init(uri: String, _ passphrase: PassphraseSource) throws(TLSError) {
        guard !uri.utf8.contains(0) else {
            throw TLSError(
                .invalidPrivateKey, "the URI \"\(uri.printable)\" contains a NUL character", operation: "OSSL_STORE_open_ex")
        }
        let (stored, entries) = Self.load(uri, passphrase)
        let hasScheme = uri.utf8.prefix(7).elementsEqual("pkcs11:".utf8)
        guard let key = stored ?? (hasScheme ? Self.loadFromEngine(uri, passphrase) : nil) else {
            if hasScheme, passphrase.isGiven {
                throw TLSError(
                    .invalidPrivateKey,
                    "the token has no private key at the URI \"\(Self.withoutSecrets(uri))\", or the PIN is wrong",
                    operation: "ENGINE_load_private_key")
            }
            throw passphrase.failure(
                encrypted: "the URI \"\(Self.withoutSecrets(uri))\" names an encrypted private key",
                otherwise: "OpenSSL found no private key at the URI \"\(Self.withoutSecrets(uri))\"",
                operation: "OSSL_STORE_load", uri.contains("?") ? [] : entries)
        }
        self.init(owning: key, isOfToken: hasScheme)
    }

    /// Loads the key through an engine, such as libp11, in case no PKCS #11 provider is available.
    private static func loadFromEngine(_ uri: String, _ passphrase: PassphraseSource) -> OpaquePointer? {
        OpenSSLCall.attempt {
            guard let method = UI_UTIL_wrap_read_pem_callback(answerPassphrase, 0) else { return nil }
            defer { UI_destroy_method(method) }
            return COpenSSL_keyOfEngine("pkcs11", uri, method, passphrase.argument)
        }.value
    }

    private static func load(_ uri: String, _ passphrase: PassphraseSource) -> (value: OpaquePointer?, errors: [OpenSSLError]) {
        OpenSSLCall.attempt {
            // Without a UI method, OpenSSL would prompt on the terminal.
            guard let method = UI_UTIL_wrap_read_pem_callback(answerPassphrase, 0) else { return nil }
            defer { UI_destroy_method(method) }
            guard let store = OSSL_STORE_open_ex(uri, nil, nil, method, passphrase.argument, nil, nil, nil) else { return nil }
            defer { OSSL_STORE_close(store) }
            // This is only a hint. A loader may not support it.
            _ = OSSL_STORE_expect(store, OSSL_STORE_INFO_PKEY)
            // A loader is third-party code, so a limit keeps it from looping forever.
            for _ in 0..<1000 where OSSL_STORE_eof(store) == 0 && OSSL_STORE_error(store) == 0 {
                guard let entry = OSSL_STORE_load(store) else { continue }
                defer { OSSL_STORE_INFO_free(entry) }
                if OSSL_STORE_INFO_get_type(entry) == OSSL_STORE_INFO_PKEY { return OSSL_STORE_INFO_get1_PKEY(entry) }
            }
            return nil
        }
    }

    /// Removes the query, because a `pkcs11:` URI may contain a PIN there (RFC 7512, section 2.4). OpenSSL's
    /// error queue repeats URIs.
    private static func withoutSecrets(_ uri: String) -> String {
        String(uri.prefix { $0 != "?" }).printable
    }
}

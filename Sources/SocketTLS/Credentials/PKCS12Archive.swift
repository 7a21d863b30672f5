// Rules for PKCS#12 (RFC 7292):
//  1. The file's encryption is determined before a passphrase is requested.
//  2. Old algorithms need the caller's permission. They are loaded into a library context that belongs to
//     this archive and is freed with it, so that the rest of the process does not become weaker. The context
//     is this thread's default context while OpenSSL decrypts, but never while other code runs. This is
//     necessary because OpenSSL 3.0 does not pass an archive's context to the archive's parts.
//  3. Keys and certificates from the archive are decoded again in the process's library context, because they
//     refer to the context in which they were created.
//  4. The file specifies how many rounds of key derivation its passphrase requires. A limit on all parts
//     together prevents a file from using minutes of CPU time (`KeyDerivation`).
//  5. "No passphrase" has two encodings, absent and empty. Both are tried before a passphrase is requested.

internal import COpenSSL

package struct PKCS12Contents: Sendable {
    package let identity: TLSIdentity
    /// The root of the identity's chain, which is not sent in a handshake.
    package let root: TLSCertificate?
}

final class PKCS12Archive {
    private let library: LegacyLibrary?
    let archive: OpaquePointer
    let source: String

    /// - Parameter source: The name of the data in error messages.
    init(_ bytes: SecretBytes, source: String, allowsLegacyAlgorithms: Bool) throws(TLSError) {
        let library = allowsLegacyAlgorithms ? try LegacyLibrary() : nil
        archive = try OpenSSLCall.require("d2i_PKCS12", or: .invalidCertificate, Self.complaint(about: bytes, source)) {
            bytes.withBytes { bytes in
                var cursor = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
                return d2i_PKCS12(nil, &cursor, bytes.count)
            }
        }
        self.library = library
        self.source = source
        try KeyDerivation.check(PKCS12Encryption.rounds(of: archive), source, operation: "PKCS12_parse")
        guard !allowsLegacyAlgorithms, let name = PKCS12Encryption.oldAlgorithm(in: archive) else { return }
        throw TLSError(
            .invalidPrivateKey,
            "\(source) is encrypted with \(name), which is too weak: encrypt it with AES or set allowsLegacyAlgorithms",
            operation: "PKCS12_parse")
    }

    deinit { PKCS12_free(archive) }

    private static func complaint(about bytes: SecretBytes, _ source: String) -> String {
        if bytes.isPEM { return "\(source) is in PEM format, not PKCS#12: use TLSIdentity(pem:)" }
        switch bytes.kind {
        case nil: return "\(source) is not in PKCS#12 format"
        case .truncated(let count): return "\(source) \(FileKind.truncated(count).description)"
        case let kind?: return "\(source) is not in PKCS#12 format: it \(kind.description)"
        }
    }

    /// Returns the key and its chain, starting at the key's own certificate. The root and unrelated
    /// certificates are omitted.
    func identity(_ passphrase: PassphraseSource) throws(TLSError) -> TLSIdentity {
        guard let contents = try contents(passphrase) else {
            throw TLSError(.invalidPrivateKey, "\(source) contains no private key", operation: "PKCS12_parse")
        }
        return contents.identity
    }

    /// Returns the identity, and the root of its chain if the file contains it. Returns `nil` if the file has
    /// no private key.
    func contents(_ passphrase: PassphraseSource) throws(TLSError) -> PKCS12Contents? {
        var key: OpaquePointer?
        var leaf: OpaquePointer?
        var others: OpaquePointer?
        defer {
            EVP_PKEY_free(key)
            X509_free(leaf)
            COpenSSL_sk_X509_free(others)
        }
        let secret = try opening(passphrase)
        defer { withExtendedLifetime(secret) {} }
        // OpenSSL decrypts the parts once more to count the rounds inside them.
        let previous = library.map { OSSL_LIB_CTX_set0_default($0.context) }
        let hidden = PKCS12Encryption.hiddenRounds(of: archive, secret?.text)
        if let previous { OSSL_LIB_CTX_set0_default(previous) }
        let seen = PKCS12Encryption.rounds(of: archive)
        try KeyDerivation.check(hidden.flatMap { KeyDerivation.sum([$0, seen ?? -1]) }, source, operation: "PKCS12_parse")
        let (isParsed, entries) = attempt { PKCS12_parse(archive, secret?.text, &key, &leaf, &others) }
        guard isParsed else {
            throw passphrase.failure(
                encrypted: "\(source) is encrypted", otherwise: "\(source) cannot be decoded", operation: "PKCS12_parse", entries
            )
        }
        guard let key else { return nil }
        guard let leaf else {
            throw TLSError(
                .invalidCertificate, "\(source) contains no certificate for its private key", operation: "PKCS12_parse")
        }
        let (chain, root) = try Self.chain(from: leaf, TLSCertificate.certificates(sharing: others))
        return PKCS12Contents(
            identity: try TLSIdentity(certificateChain: chain, privateKey: Self.copy(key)), root: root)
    }

    /// Returns the passphrase that opens the file, which is empty or `nil` if the file needs no passphrase.
    func opening(_ passphrase: PassphraseSource) throws(TLSError) -> SecretBytes? {
        guard PKCS12_mac_present(archive) == 1 else {
            guard PKCS12Encryption.isEncrypted(archive) else { return nil }
            throw TLSError(
                .invalidPrivateKey, "\(source) is encrypted but has no MAC, which OpenSSL requires", operation: "PKCS12_parse")
        }
        if verifies(nil) { return nil }
        let empty = SecretBytes("", isTerminated: true)
        if verifies(empty) { return empty }
        let secret = passphrase.terminated()
        if let secret, verifies(secret) { return secret }
        throw passphrase.failure(
            encrypted: "\(source) is encrypted", otherwise: "\(source) cannot be decoded", operation: "PKCS12_verify_mac")
    }

    private func verifies(_ secret: SecretBytes?) -> Bool {
        withExtendedLifetime(secret) { attempt { PKCS12_verify_mac(archive, secret?.text, -1) }.isDone }
    }

    /// Runs a call that returns 1 on success, with the algorithms that this archive may use.
    private func attempt(_ body: () -> Int32) -> (isDone: Bool, entries: [OpenSSLError]) {
        let (isDone, entries) = withAlgorithms { body() == 1 ? true : nil }
        return (isDone == true, entries)
    }

    /// Runs a call that returns `nil` on failure, with the algorithms that this archive may use.
    func withAlgorithms<Value>(_ body: () -> Value?) -> (value: Value?, errors: [OpenSSLError]) {
        let previous = library.map { OSSL_LIB_CTX_set0_default($0.context) }
        defer { if let previous { OSSL_LIB_CTX_set0_default(previous) } }
        return OpenSSLCall.attempt(body)
    }

    /// Builds the chain from the key's certificate upwards, without the root.
    private static func chain(
        from leaf: OpaquePointer, _ others: [TLSCertificate]
    ) throws(TLSError) -> ([TLSCertificate], root: TLSCertificate?) {
        var chain = [try TLSCertificate(der: TLSCertificate(sharing: leaf).derBytes)]
        var rest = others
        while let last = chain.last, !last.isSelfIssued, let next = rest.firstIndex(where: { $0.hasIssued(last) }) {
            let issuer = rest.remove(at: next)
            let copy = try TLSCertificate(der: issuer.derBytes)
            if issuer.isSelfIssued { return (chain, copy) }
            chain.append(copy)
        }
        return (chain, nil)
    }

    private static func copy(_ key: OpaquePointer) throws(TLSError) -> TLSPrivateKey {
        let complaint = "the private key of the PKCS#12 file cannot be used"
        let info = try OpenSSLCall.require("EVP_PKEY2PKCS8", or: .invalidPrivateKey, complaint) { EVP_PKEY2PKCS8(key) }
        defer { PKCS8_PRIV_KEY_INFO_free(info) }
        let count = Int(max(0, i2d_PKCS8_PRIV_KEY_INFO(info, nil)))
        let encoding = SecretBytes(count: count) { room in
            var cursor = room.baseAddress?.assumingMemoryBound(to: UInt8.self)
            _ = i2d_PKCS8_PRIV_KEY_INFO(info, &cursor)
        }
        return try TLSPrivateKey(der: encoding, PassphraseSource(nil), source: "the PKCS#12 file")
    }
}

extension SecretBytes {
    fileprivate var isPEM: Bool { withBytes { $0.starts(with: "-----BEGIN ".utf8) } }

    /// The bytes as a C string, if they are NUL-terminated. The caller must keep this object alive.
    var text: UnsafePointer<CChar>? { keptBytes.baseAddress?.assumingMemoryBound(to: CChar.self) }
}

extension TLSCertificate {
    fileprivate var isSelfIssued: Bool { hasIssued(self) }

    /// Compares names and key identifiers, but does not verify the signature.
    fileprivate func hasIssued(_ other: TLSCertificate) -> Bool {
        X509_check_issued(handle.x509, other.handle.x509) == X509_V_OK
    }
}

/// A library context with OpenSSL's legacy algorithms, separate from the process's context.
private final class LegacyLibrary {
    let context: OpaquePointer
    private let providers: [OpaquePointer]

    init() throws(TLSError) {
        let context = try OpenSSLCall.require(
            "OSSL_LIB_CTX_new", or: .internalError, "OpenSSL is out of memory"
        ) {
            OSSL_LIB_CTX_new()
        }
        var providers: [OpaquePointer] = []
        for name in ["default", "legacy"] {
            let (provider, entries) = OpenSSLCall.attempt { OSSL_PROVIDER_load(context, name) }
            guard let provider else {
                for provider in providers { OSSL_PROVIDER_unload(provider) }
                OSSL_LIB_CTX_free(context)
                throw TLSError(
                    .internalError, "the OpenSSL provider \"\(name)\" cannot be loaded: install it",
                    operation: "OSSL_PROVIDER_load", openSSLStack: entries.map(\.text))
            }
            providers.append(provider)
        }
        (self.context, self.providers) = (context, providers)
    }

    deinit {
        for provider in providers { OSSL_PROVIDER_unload(provider) }
        OSSL_LIB_CTX_free(context)
    }
}

private enum PKCS12Encryption {
    /// Returns OpenSSL's name for the first algorithm that is too weak.
    static func oldAlgorithm(in archive: OpaquePointer) -> String? {
        algorithms(in: archive).lazy.compactMap(oldName).first
    }

    static func isEncrypted(_ archive: OpaquePointer) -> Bool {
        !algorithms(in: archive).isEmpty
    }

    /// Returns the total rounds of all parts that are visible without a passphrase, or `nil` if a number is
    /// negative.
    static func rounds(of archive: OpaquePointer) -> Int? {
        KeyDerivation.sum([roundsOfMAC(in: archive)] + algorithms(in: archive).map(\.rounds))
    }

    private static func roundsOfMAC(in archive: OpaquePointer) -> Int {
        var data: UnsafePointer<X509_ALGOR>?
        PKCS12_get0_mac(nil, &data, nil, nil, archive)
        if let data, OBJ_obj2nid(data.pointee.algorithm) == NID_pbmac1 { return KeyDerivation.algorithm(data).rounds }
        return COpenSSL_roundsOfMAC(archive)
    }

    /// Decrypts the encrypted parts with `passphrase`, and returns the total rounds of the keys inside them,
    /// or `nil` if a number is negative.
    static func hiddenRounds(of archive: OpaquePointer, _ passphrase: UnsafePointer<CChar>?) -> Int? {
        guard let safes = OpenSSLCall.attempt({ PKCS12_unpack_authsafes(archive) }).value else { return 0 }
        defer { COpenSSL_sk_PKCS7_free(safes) }
        var rounds: [Int] = []
        for index in 0..<COpenSSL_sk_PKCS7_num(safes) {
            guard let safe = COpenSSL_sk_PKCS7_value(safes, index), OBJ_obj2nid(safe.pointee.type) == NID_pkcs7_encrypted else {
                continue
            }
            let bags = OpenSSLCall.attempt { PKCS12_unpack_p7encdata(safe, passphrase, -1) }.value
            rounds += algorithmsOfKeys(in: bags).map(\.rounds)
            COpenSSL_sk_PKCS12_SAFEBAG_free(bags)
        }
        return KeyDerivation.sum(rounds)
    }

    private typealias Algorithm = KeyDerivation.Algorithm

    private static func algorithms(in archive: OpaquePointer) -> [Algorithm] {
        guard let safes = OpenSSLCall.attempt({ PKCS12_unpack_authsafes(archive) }).value else { return [] }
        defer { COpenSSL_sk_PKCS7_free(safes) }
        var found: [Algorithm] = []
        for index in 0..<COpenSSL_sk_PKCS7_num(safes) {
            guard let safe = COpenSSL_sk_PKCS7_value(safes, index) else { continue }
            switch OBJ_obj2nid(safe.pointee.type) {
            case NID_pkcs7_encrypted:
                if let data = safe.pointee.d.encrypted?.pointee.enc_data?.pointee.algorithm {
                    found.append(KeyDerivation.algorithm(data))
                }
            case NID_pkcs7_data: found += algorithmsOfKeys(in: safe)
            default: break
            }
        }
        return found
    }

    private static func algorithmsOfKeys(in safe: UnsafeMutablePointer<PKCS7>) -> [Algorithm] {
        guard let bags = OpenSSLCall.attempt({ PKCS12_unpack_p7data(safe) }).value else { return [] }
        defer { COpenSSL_sk_PKCS12_SAFEBAG_free(bags) }
        return algorithmsOfKeys(in: bags)
    }

    /// Includes keys in nested bags, as deep as OpenSSL looks for keys.
    private static func algorithmsOfKeys(in bags: OpaquePointer?) -> [Algorithm] {
        guard let bags else { return [] }
        return (0..<COpenSSL_sk_PKCS12_SAFEBAG_num(bags)).flatMap { index -> [Algorithm] in
            let bag = COpenSSL_sk_PKCS12_SAFEBAG_value(bags, index)
            switch PKCS12_SAFEBAG_get_nid(bag) {
            case NID_pkcs8ShroudedKeyBag:
                var data: UnsafePointer<X509_ALGOR>?
                X509_SIG_get0(PKCS12_SAFEBAG_get0_pkcs8(bag), &data, nil)
                return data.map { [KeyDerivation.algorithm($0)] } ?? []
            case NID_safeContentsBag: return algorithmsOfKeys(in: PKCS12_SAFEBAG_get0_safes(bag))
            default: return []
            }
        }
    }

    private static let oldCiphers = [NID_des_cbc, NID_des_ede3_cbc, NID_rc2_cbc, NID_rc5_cbc]

    /// Everything older than PBES2 is weak: RC2 and RC4 with any key length, and every form of DES.
    private static func oldName(_ algorithm: Algorithm) -> String? {
        let old = algorithm.scheme != NID_pbes2 ? algorithm.scheme : algorithm.cipher
        guard algorithm.scheme != NID_pbes2 || oldCiphers.contains(old) else { return nil }
        return OBJ_nid2ln(old).map { String(cString: $0) } ?? "an unknown algorithm"
    }
}

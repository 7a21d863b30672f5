internal import COpenSSL
internal import Glibc

/// A read-only memory BIO over PEM text, with the passphrase for encrypted blocks.
final class PEMReader {
    private let text: SecretBytes
    private let passphrase: PassphraseSource
    /// The name of the text in errors.
    private let source: String
    private let bio: OpaquePointer

    init(
        _ text: SecretBytes, from source: String = "the PEM text", passphrase: PassphraseSource = PassphraseSource(nil),
        or code: TLSError.Code
    ) throws(TLSError) {
        let bytes = text.keptBytes
        guard let count = Int32(exactly: bytes.count) else {
            throw TLSError(
                code, "the PEM text (\(bytes.count) bytes) is too large for OpenSSL", operation: "BIO_new_mem_buf")
        }
        self.text = text
        self.passphrase = passphrase
        self.source = source
        bio = try OpenSSLCall.require("BIO_new_mem_buf", or: .internalError, "OpenSSL is out of memory") {
            BIO_new_mem_buf(bytes.baseAddress, count)
        }
    }

    deinit { BIO_free(bio) }

    /// Returns the next certificate, or `nil` after the last one. Other kinds of blocks are skipped.
    ///
    /// - Throws: An error after the last certificate if blocks of another kind contain certificates, because
    ///   an incomplete list could be mistaken for the whole list.
    func nextCertificate() throws(TLSError) -> OpaquePointer? {
        let certificate = try next("a certificate", "PEM_read_bio_X509") {
            PEM_read_bio_X509(bio, nil, answerPassphrase, passphrase.argument)
        }
        if let certificate { return certificate }
        for (block, program) in Self.unreadBlocks where hasLine(startingWith: "-----BEGIN \(block)-----") {
            throw TLSError(
                .invalidCertificate,
                "\(source) contains a block of the kind \"\(block)\", which is not supported: convert it with \(program)",
                operation: "PEM_read_bio_X509")
        }
        return nil
    }

    /// Blocks that contain certificates in another form, and the programs that convert them.
    private static let unreadBlocks = [("TRUSTED CERTIFICATE", "`openssl x509`"), ("PKCS7", "`openssl pkcs7 -print_certs`")]

    private func hasLine(startingWith beginning: String) -> Bool {
        var rest = text.keptBytes
        while let start = rest.baseAddress, !rest.isEmpty {
            if rest.starts(with: beginning.utf8) { return true }
            guard let end = memchr(start, 0x0A, rest.count) else { break }
            rest = UnsafeRawBufferPointer(rebasing: rest[(UnsafeRawPointer(end) + 1 - start)...])
        }
        return false
    }

    /// Returns the next certificate revocation list, or `nil` after the last one. Other kinds of blocks are
    /// skipped.
    func nextRevocationList() throws(TLSError) -> OpaquePointer? {
        try next("a certificate revocation list", "PEM_read_bio_X509_CRL") {
            PEM_read_bio_X509_CRL(bio, nil, answerPassphrase, passphrase.argument)
        }
    }

    private func next(
        _ what: String, _ operation: String, _ read: () -> OpaquePointer?
    ) throws(TLSError) -> OpaquePointer? {
        let (value, entries) = OpenSSLCall.attempt(read)
        if let value { return value }
        if entries.last?.isEndOfPEM == true { return nil }
        throw TLSError(
            .invalidCertificate, "\(source) contains \(what) that cannot be decoded", operation: operation,
            openSSLStack: entries.map(\.text))
    }

    /// Returns the key derivation rounds of each encrypted private key, without decrypting the keys.
    /// Unreadable blocks are skipped, because OpenSSL may skip them too.
    func roundsOfKeys() -> [Int] {
        var all: [Int] = []
        // The loop is bounded, because each attempt consumes at least one line.
        for _ in 0..<text.count {
            let (rounds, entries) = nextRounds()
            if let rounds { all.append(rounds) }
            if entries.last?.isEndOfPEM == true { break }
        }
        return all
    }

    /// Returns the rounds of the next block, or `nil` if the block is unreadable or not an encrypted private
    /// key.
    private func nextRounds() -> (rounds: Int?, entries: [OpenSSLError]) {
        var (name, header, data): (UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<UInt8>?)
        var count = 0
        let (block, entries) = OpenSSLCall.attempt { PEM_read_bio(bio, &name, &header, &data, &count) == 1 ? name : nil }
        guard let block else { return (nil, entries) }
        defer {
            COpenSSL_free(name)
            COpenSSL_free(header)
            // The data may be an unencrypted key.
            CRYPTO_clear_free(data, count, "", 0)
        }
        guard String(cString: block) == "ENCRYPTED PRIVATE KEY" else { return (nil, []) }
        return (KeyDerivation.rounds(ofKey: UnsafeRawBufferPointer(start: data, count: count)), [])
    }

    /// Returns the first private key, or `nil` and the errors if the key cannot be read.
    func privateKey() -> (key: OpaquePointer?, entries: [OpenSSLError]) {
        let (key, entries) = OpenSSLCall.attempt { PEM_read_bio_PrivateKey(bio, nil, answerPassphrase, passphrase.argument) }
        return (key, entries)
    }
}

extension OpenSSLError {
    fileprivate var isEndOfPEM: Bool { library == Int32(ERR_LIB_PEM) && reason == PEM_R_NO_START_LINE }
}

/// Memory BIOs, which capture the output of OpenSSL's print functions and provide text to its read functions.
package enum MemoryBIO {
    /// Calls `read` with a BIO over `text`. Returns `nil` if the text is too large for OpenSSL.
    package static func reading<Value>(_ text: String, _ read: (OpaquePointer) -> Value?) -> Value? {
        var text = text
        return text.withUTF8 { bytes in
            guard let count = Int32(exactly: bytes.count), let bio = BIO_new_mem_buf(bytes.baseAddress, count) else {
                return nil
            }
            defer { BIO_free(bio) }
            return read(bio)
        }
    }

    /// Returns the output of `print`, or `nil` if it fails or writes no bytes.
    package static func text(_ print: (OpaquePointer) -> Int32) -> String? {
        guard let bio = BIO_new(BIO_s_mem()) else { return nil }
        defer { BIO_free(bio) }
        guard print(bio) >= 0 else { return nil }
        var start: UnsafeMutablePointer<CChar>?
        let length = COpenSSL_BIO_memoryData(bio, &start)
        guard let start, length > 0 else { return nil }
        return String(decoding: UnsafeRawBufferPointer(start: start, count: length), as: UTF8.self)
    }
}

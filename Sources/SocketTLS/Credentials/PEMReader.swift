// The passphrase callback is always set: without one OpenSSL asks on the terminal and waits.

internal import COpenSSL
internal import Glibc

/// A read-only memory BIO over PEM text, and the passphrase for its encrypted blocks.
final class PEMReader {
    private let text: SecretBytes
    private let passphrase: SecretBytes?
    private let bio: OpaquePointer
    /// OpenSSL has met an encrypted block.
    private(set) var askedForPassphrase = false

    init(_ text: SecretBytes, passphrase: String? = nil, or code: TLSError.Code) throws(TLSError) {
        let bytes = text.bytes
        guard let count = Int32(exactly: bytes.count) else {
            throw TLSError(
                code, "The PEM text has \(bytes.count) bytes, more than OpenSSL can read.", operation: "BIO_new_mem_buf")
        }
        if let passphrase, passphrase.utf8.count > Self.longestPassphrase {
            throw TLSError(
                code,
                "The passphrase has \(passphrase.utf8.count) bytes, and OpenSSL takes no more than \(Self.longestPassphrase).",
                operation: "PEM_read_bio_PrivateKey")
        }
        self.text = text
        self.passphrase = passphrase.map { SecretBytes($0) }
        bio = try OpenSSLCall.require("BIO_new_mem_buf", or: .internalError, "OpenSSL has no memory to read PEM.") {
            BIO_new_mem_buf(bytes.baseAddress, count)
        }
    }

    /// `PEM_BUFSIZE`.
    private static let longestPassphrase = 1024

    deinit { BIO_free(bio) }

    /// The next certificate, or nil after the last one. Blocks of other kinds are skipped.
    func nextCertificate() throws(TLSError) -> OpaquePointer? {
        let (certificate, entries) = OpenSSLCall.attempt {
            PEM_read_bio_X509(bio, nil, answerPassphrase, Unmanaged.passUnretained(self).toOpaque())
        }
        if let certificate { return certificate }
        if entries.last?.isEndOfPEM == true { return nil }
        throw TLSError(
            .invalidCertificate, "The PEM text has a certificate that cannot be decoded.", operation: "PEM_read_bio_X509",
            openSSLStack: entries.map(\.text))
    }

    /// The first private key, or nil if it cannot be read; the errors say why.
    func privateKey() -> (key: OpaquePointer?, entries: [OpenSSLError]) {
        ERR_clear_error()
        let key = PEM_read_bio_PrivateKey(bio, nil, answerPassphrase, Unmanaged.passUnretained(self).toOpaque())
        return (key, OpenSSLError.drainQueue())
    }

    fileprivate func copyPassphrase(to buffer: UnsafeMutablePointer<CChar>, size: Int) -> Int32 {
        askedForPassphrase = true
        guard let bytes = passphrase?.bytes, bytes.count <= size else { return -1 }
        if let base = bytes.baseAddress { memcpy(buffer, base, bytes.count) }
        return Int32(bytes.count)
    }
}

/// A `pem_password_cb`; a C function cannot be a stored property.
private func answerPassphrase(
    _ buffer: UnsafeMutablePointer<CChar>?, _ size: Int32, _: Int32, _ reader: UnsafeMutableRawPointer?
) -> Int32 {
    guard let buffer, let reader else { return -1 }
    return Unmanaged<PEMReader>.fromOpaque(reader).takeUnretainedValue().copyPassphrase(to: buffer, size: Int(size))
}

extension OpenSSLError {
    fileprivate var isEndOfPEM: Bool { library == Int32(ERR_LIB_PEM) && reason == PEM_R_NO_START_LINE }
}

/// A growing memory BIO, for the OpenSSL functions that print.
package enum MemoryBIO {
    /// What `print` writes; nil if it fails or writes nothing.
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

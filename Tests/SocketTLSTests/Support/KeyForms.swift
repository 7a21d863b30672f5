import AsyncSocketsTesting
import COpenSSL
import SocketTLS

/// A key in all formats that OpenSSL writes.
final class WrittenKey {
    private let key: OpaquePointer

    init(pem: String) throws {
        let key = Array(pem.utf8).withUnsafeBytes { bytes in
            // This kind of BIO reads from the caller's memory.
            let bio = BIO_new_mem_buf(bytes.baseAddress, Int32(bytes.count))
            defer { BIO_free(bio) }
            return PEM_read_bio_PrivateKey(bio, nil, nil, nil)
        }
        guard let key else { throw TestFailure(what: "PEM_read_bio_PrivateKey") }
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    enum Form: CaseIterable {
        case pkcs8
        /// PKCS#1 for RSA, SEC1 for EC.
        case traditional
    }

    func der(_ form: Form) throws -> [UInt8] {
        try MemoryBytes.written { bio in
            switch form {
            case .pkcs8: i2d_PKCS8PrivateKey_bio(bio, key, nil, nil, 0, nil, nil)
            case .traditional: i2d_PrivateKey_bio(bio, key)
            }
        }
    }

    func encryptedDER(_ passphrase: String) throws -> [UInt8] {
        try MemoryBytes.written {
            i2d_PKCS8PrivateKey_bio($0, key, EVP_aes_256_cbc(), passphrase, Int32(passphrase.utf8.count), nil, nil)
        }
    }

    func encryptedPEM(_ passphrase: String) throws -> String {
        let text = MemoryBIO.text {
            PEM_write_bio_PrivateKey($0, key, EVP_aes_256_cbc(), passphrase, Int32(passphrase.utf8.count), nil, nil)
        }
        guard let text else { throw TestFailure(what: "PEM_write_bio_PrivateKey") }
        return text
    }

    /// Returns only the public key.
    func publicDER() throws -> [UInt8] {
        try MemoryBytes.written { i2d_PUBKEY_bio($0, key) }
    }

    /// The encryption of a PKCS#12 file.
    enum Encryption: CaseIterable {
        case none, aes, tripleDES, rc2

        fileprivate var identifier: Int32 {
            switch self {
            case .none: -1
            case .aes: NID_aes_256_cbc
            case .tripleDES: NID_pbe_WithSHA1And3_Key_TripleDES_CBC
            case .rc2: NID_pbe_WithSHA1And40BitRC2_CBC
            }
        }
    }

    /// Returns a PKCS#12 file. If `passphrase` is nil, it has none.
    func pkcs12(
        certificate: TLSCertificate?, others: [TLSCertificate] = [], passphrase: String?, _ encryption: Encryption = .aes,
        hasKey: Bool = true, hasMAC: Bool = true
    ) throws -> [UInt8] {
        let library = OSSL_LIB_CTX_new()
        let providers = ["default", "legacy"].map { (name: String) in OSSL_PROVIDER_load(library, name) }
        let leaf = certificate.flatMap(Self.x509)
        let stack = COpenSSL_sk_X509_new()
        defer {
            X509_free(leaf)
            COpenSSL_sk_X509_free(stack)
            for provider in providers { OSSL_PROVIDER_unload(provider) }
            OSSL_LIB_CTX_free(library)
        }
        for other in others { _ = COpenSSL_sk_X509_push(stack, Self.x509(other)) }
        let archive = PKCS12_create_ex(
            passphrase, nil, hasKey ? key : nil, leaf, stack, encryption.identifier, encryption.identifier, 0,
            hasMAC ? 0 : -1, 0, library, nil)
        guard let archive else { throw TestFailure(what: "PKCS12_create_ex") }
        defer { PKCS12_free(archive) }
        return try MemoryBytes.written { i2d_PKCS12_bio($0, archive) }
    }

    private static func x509(_ certificate: TLSCertificate) -> OpaquePointer? {
        certificate.derBytes.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return d2i_X509(nil, &cursor, bytes.count)
        }
    }
}

/// Captures the output of OpenSSL functions.
enum MemoryBytes {
    static func written(_ write: (OpaquePointer) -> Int32) throws -> [UInt8] {
        guard let bio = BIO_new(BIO_s_mem()) else { throw TestFailure(what: "BIO_new") }
        defer { BIO_free(bio) }
        guard write(bio) > 0 else { throw TestFailure(what: "write: \(OpenSSLCallQueue.texts)") }
        var start: UnsafeMutablePointer<CChar>?
        let length = COpenSSL_BIO_memoryData(bio, &start)
        return Array(UnsafeRawBufferPointer(start: start, count: length))
    }
}

/// OpenSSL's error queue, for failed tests.
enum OpenSSLCallQueue {
    static var texts: [String] {
        var texts: [String] = []
        while case let code = ERR_get_error(), code != 0 {
            texts.append(ERR_reason_error_string(code).map { String(cString: $0) } ?? "\(code)")
        }
        return texts
    }
}

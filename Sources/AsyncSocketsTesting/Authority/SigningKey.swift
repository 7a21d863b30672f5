internal import COpenSSL
internal import SocketTLS

/// The owner of an `EVP_PKEY`.
final class SigningKey: @unchecked Sendable {
    // Unchecked: the key is never changed after `init`, and OpenSSL allows any number of threads to sign with
    // one key.
    let pointer: OpaquePointer

    init(_ type: CertificateAuthority.KeyType) throws(CertificateAuthorityError) {
        switch type {
        case .p256: pointer = try CertificateCall.require("EVP_EC_gen") { COpenSSL_EVP_EC_generate("P-256") }
        case .rsa2048: pointer = try CertificateCall.require("EVP_RSA_gen") { COpenSSL_EVP_RSA_generate(2048) }
        }
    }

    deinit { EVP_PKEY_free(pointer) }

    /// PKCS #8, not encrypted.
    var pem: String {
        get throws(CertificateAuthorityError) {
            try CertificateCall.require("PEM_write_bio_PKCS8PrivateKey") {
                MemoryBIO.text { PEM_write_bio_PKCS8PrivateKey($0, pointer, nil, nil, 0, nil, nil) }
            }
        }
    }
}

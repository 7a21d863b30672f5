import COpenSSL
import SocketTLS

/// How a certificate is signed.
enum SignatureKind: String, CaseIterable {
    case md5, sha1, sha256, sha384, sha512, pss384, ed25519
}

extension TLSIdentity {
    /// Returns a self-signed certificate with this kind of signature, which CAs no longer use.
    static func selfSigned(_ kind: SignatureKind) throws -> TLSIdentity {
        let key = try OwnedKey(kind)
        guard let certificate = X509_new() else { throw TestFailure(what: "X509_new") }
        defer { X509_free(certificate) }
        X509_set_version(certificate, Int(X509_VERSION_3))
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), .random(in: 1...(.max)))
        X509_gmtime_adj(X509_getm_notBefore(certificate), -60)
        X509_gmtime_adj(X509_getm_notAfter(certificate), 3600)
        X509_NAME_add_entry_by_NID(
            X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8, Array(kind.rawValue.utf8),
            Int32(kind.rawValue.utf8.count), -1, 0)
        X509_set_issuer_name(certificate, X509_get_subject_name(certificate))
        X509_set_pubkey(certificate, key.pointer)
        guard key.sign(certificate, kind) else { throw TestFailure(what: "X509_sign \(kind)") }
        let pem = MemoryBIO.text {
            PEM_write_bio_X509($0, certificate) + PEM_write_bio_PKCS8PrivateKey($0, key.pointer, nil, nil, 0, nil, nil)
        }
        return try TLSIdentity(pem: pem ?? "")
    }

    private final class OwnedKey {
        let pointer: OpaquePointer

        init(_ kind: SignatureKind) throws {
            if kind == .ed25519 {
                let context = EVP_PKEY_CTX_new_from_name(nil, "ED25519", nil)
                defer { EVP_PKEY_CTX_free(context) }
                var key: OpaquePointer?
                guard EVP_PKEY_keygen_init(context) == 1, EVP_PKEY_generate(context, &key) == 1, let key else {
                    throw TestFailure(what: "ED25519")
                }
                pointer = key
            } else {
                guard let key = COpenSSL_EVP_RSA_generate(2048) else { throw TestFailure(what: "RSA") }
                pointer = key
            }
        }

        deinit { EVP_PKEY_free(pointer) }

        func sign(_ certificate: OpaquePointer, _ kind: SignatureKind) -> Bool {
            switch kind {
            case .ed25519: X509_sign(certificate, pointer, nil) > 0
            case .pss384: signWithPSS(certificate)
            case .md5: X509_sign(certificate, pointer, EVP_md5()) > 0
            case .sha1: X509_sign(certificate, pointer, EVP_sha1()) > 0
            case .sha256: X509_sign(certificate, pointer, EVP_sha256()) > 0
            case .sha384: X509_sign(certificate, pointer, EVP_sha384()) > 0
            case .sha512: X509_sign(certificate, pointer, EVP_sha512()) > 0
            }
        }

        private func signWithPSS(_ certificate: OpaquePointer) -> Bool {
            let context = EVP_MD_CTX_new()
            defer { EVP_MD_CTX_free(context) }
            var parameters: OpaquePointer?
            return EVP_DigestSignInit(context, &parameters, EVP_sha384(), nil, pointer) == 1
                && EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1
                && X509_sign_ctx(certificate, context) > 0
        }
    }
}

internal import COpenSSL
internal import SocketTLS

/// The contents of a PKCS #12 file (RFC 7292), usually named `.p12` or `.pfx`, which browsers and other
/// programs import.
public enum PKCS12File {
    /// Returns a file with a private key and its certificate chain.
    ///
    /// The file is encrypted with AES-256, which programs from before 2018 may not be able to read.
    ///
    /// - Parameters:
    ///   - certificateChainPEM: The certificate for the key, followed by other certificates in any order.
    ///   - privateKeyPEM: The unencrypted private key.
    ///   - name: The name that programs display for the key.
    ///   - passphrase: Encrypts the file, including the private key.
    /// - Throws: `CertificateAuthorityError` if a text cannot be decoded, or if the key does not match the
    ///   first certificate.
    public static func bytes(
        certificateChainPEM: String, privateKeyPEM: String, name: String, passphrase: String
    ) throws(CertificateAuthorityError) -> [UInt8] {
        let leaf = try X509Certificate(pem: certificateChainPEM)
        let key = try SigningKey(pem: privateKeyPEM)
        guard !passphrase.utf8.contains(0), !name.utf8.contains(0) else {
            throw CertificateAuthorityError(
                .invalidName, "the name and the passphrase must not contain NUL characters", operation: "PKCS12_create")
        }
        let others = try chain(in: certificateChainPEM)
        defer { COpenSSL_sk_X509_pop_free(others) }
        let archive = try CertificateCall.require(
            "PKCS12_create", or: .invalidAuthority, "the private key does not match the first certificate"
        ) { PKCS12_create(passphrase, name, key.pointer, leaf.pointer, others, 0, 0, 0, 0, 0) }
        defer { PKCS12_free(archive) }
        return try encode(archive)
    }

    private static func encode(_ archive: OpaquePointer) throws(CertificateAuthorityError) -> [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = try CertificateCall.require("i2d_PKCS12") {
            let length = i2d_PKCS12(archive, &encoding)
            return length > 0 ? Int(length) : nil
        }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: length))
    }

    /// Returns the certificates after the first, as a `STACK_OF(X509)` that owns them.
    private static func chain(in pem: String) throws(CertificateAuthorityError) -> OpaquePointer? {
        try CertificateCall.require("PEM_read_bio_X509") {
            MemoryBIO.reading(pem) { bio in
                guard let stack = COpenSSL_sk_X509_new() else { return nil }
                X509_free(PEM_read_bio_X509(bio, nil, nil, nil))
                while let certificate = PEM_read_bio_X509(bio, nil, nil, nil) {
                    guard COpenSSL_sk_X509_push(stack, certificate) > 0 else {
                        X509_free(certificate)
                        COpenSSL_sk_X509_pop_free(stack)
                        return nil
                    }
                }
                return stack
            }
        }
    }
}

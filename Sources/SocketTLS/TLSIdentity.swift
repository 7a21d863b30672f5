internal import COpenSSL

/// A certificate, the chain from it to a root, and its private key: what one side proves its identity with.
public struct TLSIdentity: Sendable, Hashable {
    /// The side's own certificate first, then the intermediates in order. The root may be left out.
    public let certificateChain: [Certificate]
    /// The private key of the first certificate.
    public let privateKey: PrivateKey

    /// An identity from parts.
    ///
    /// Throws `invalidCertificate` if the chain is empty, and `keyMismatch` if the key does not belong to its
    /// first certificate.
    public init(certificateChain: [Certificate], privateKey: PrivateKey) throws(TLSError) {
        guard let leaf = certificateChain.first else {
            throw TLSError(.invalidCertificate, "The certificate chain is empty.", operation: "TLSIdentity")
        }
        try OpenSSLCall.requireSuccess(
            "X509_check_private_key", or: .keyMismatch,
            "The private key does not belong to the certificate of \"\(leaf.displayName)\", the first of the chain."
        ) { X509_check_private_key(leaf.handle.x509, privateKey.handle.key) }
        self.certificateChain = certificateChain
        self.privateKey = privateKey
    }

    /// An identity from one PEM text with the chain, own certificate first, and the private key.
    public init(pem: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificateChain: Certificate.certificates(pem: pem), privateKey: PrivateKey(pem: pem, passphrase: passphrase))
    }

    /// An identity from two PEM files, which may be the same file.
    public init(certificateFile: String, privateKeyFile: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificateChain: Certificate.certificates(file: certificateFile),
            privateKey: PrivateKey(file: privateKeyFile, passphrase: passphrase))
    }
}

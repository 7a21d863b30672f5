internal import COpenSSL

/// A certificate, its chain and its private key, with which one side proves its identity.
///
/// Every initializer with a passphrase accepts a string or a closure that returns a string. The closure is
/// called once, and only if the key is encrypted (see `TLSPrivateKey`).
public struct TLSIdentity: Sendable, Hashable {
    /// The side's own certificate, followed by the intermediates in order. The root may be omitted.
    public let certificateChain: [TLSCertificate]
    /// The private key of the first certificate.
    public let privateKey: TLSPrivateKey
    /// The response set by `stapling(ocspResponse:issuer:)`.
    var stapledResponse: StapledResponse?

    /// Creates an identity from a chain and a private key.
    ///
    /// Throws `invalidCertificate` if the chain is empty or contains a key on a curve with explicit
    /// parameters, which peers reject (RFC 8422, section 5.1.1), and `keyMismatch` if the key does not match
    /// the first certificate.
    public init(certificateChain: [TLSCertificate], privateKey: TLSPrivateKey) throws(TLSError) {
        guard let leaf = certificateChain.first else {
            throw TLSError(.invalidCertificate, "the certificate chain is empty", operation: "TLSIdentity")
        }
        for certificate in certificateChain { try Self.checkCurve(of: certificate) }
        try OpenSSLCall.requireSuccess(
            "X509_check_private_key", or: .keyMismatch,
            "the private key does not match the certificate of \"\(leaf.displayName)\", the first in the chain"
        ) { X509_check_private_key(leaf.handle.x509, privateKey.handle.key) }
        self.certificateChain = certificateChain
        self.privateKey = privateKey
    }

    private static func checkCurve(of certificate: TLSCertificate) throws(TLSError) {
        guard certificate.derBytes.withUnsafeBytes(CertificateMessage.describesCurve) else { return }
        throw TLSError(
            .invalidCertificate,
            "the certificate of \"\(certificate.displayName)\" has a key on an unnamed curve: create the key with a named curve",
            operation: "TLSIdentity")
    }
}

// MARK: - PEM and DER

extension TLSIdentity {
    /// Creates an identity from PEM text that contains the private key and the chain, starting with this
    /// side's own certificate.
    public init(pem: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificateChain: TLSCertificate.certificates(pem: pem), privateKey: TLSPrivateKey(pem: pem, passphrase: passphrase))
    }

    /// Creates an identity from PEM text, with a closure for the passphrase. See `init(pem:passphrase:)`.
    public init(pem: String, passphrase: () throws -> String) throws(TLSError) {
        try self.init(
            certificateChain: TLSCertificate.certificates(pem: pem), privateKey: TLSPrivateKey(pem: pem, passphrase: passphrase))
    }

    /// Creates an identity from two files, each in PEM or DER form. Both may be the same PEM file.
    public init(certificateFile: String, privateKeyFile: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificateChain: TLSCertificate.certificates(file: certificateFile),
            privateKey: TLSPrivateKey(file: privateKeyFile, passphrase: passphrase))
    }

    /// Creates an identity from two files, with a closure for the passphrase. See
    /// `init(certificateFile:privateKeyFile:passphrase:)`.
    public init(certificateFile: String, privateKeyFile: String, passphrase: () throws -> String) throws(TLSError) {
        try self.init(
            certificateChain: TLSCertificate.certificates(file: certificateFile),
            privateKey: TLSPrivateKey(file: privateKeyFile, passphrase: passphrase))
    }

    /// Creates an identity with a private key named by a URI, such as `pkcs11:object=mail;type=private`. See
    /// `TLSPrivateKey.init(uri:passphrase:)`.
    ///
    /// The passphrase is the token's PIN. The key stays in the token, which creates the signatures.
    public init(
        certificateChain: [TLSCertificate], privateKeyURI: String, passphrase: String? = nil
    ) throws(TLSError) {
        try self.init(
            certificateChain: certificateChain, privateKey: TLSPrivateKey(uri: privateKeyURI, passphrase: passphrase))
    }

    /// Creates an identity with a private key named by a URI, with a closure for the passphrase. See
    /// `init(certificateChain:privateKeyURI:passphrase:)`.
    public init(
        certificateChain: [TLSCertificate], privateKeyURI: String, passphrase: () throws -> String
    ) throws(TLSError) {
        try self.init(
            certificateChain: certificateChain, privateKey: TLSPrivateKey(uri: privateKeyURI, passphrase: passphrase))
    }
}

/// An OCSP response for a certificate (`TLSIdentity.stapling`).
struct StapledResponse: Hashable, Sendable {
    let bytes: [UInt8]
    /// When the response expires, in seconds since 1970.
    let end: Int
}

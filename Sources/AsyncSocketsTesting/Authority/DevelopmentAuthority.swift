internal import COpenSSL

/// A certificate authority that is stored in PEM files and issues certificates for development.
///
/// A `CertificateAuthority` exists only in memory and suits a single test run. This authority can be loaded
/// again, so browsers and other programs can be set up to trust it once:
///
///     let authority = try DevelopmentAuthority(name: "Ada's laptop")
///     let server = try authority.issue(.server(names: ["localhost", "127.0.0.1"]))
///     try authority.certificatePEM.write(toFile: "ca.pem", atomically: true, encoding: .utf8)
///
/// The root signs certificates directly, without an intermediate. **Never use it in production**: with the
/// private key, an attacker can impersonate any server to programs that trust the authority.
public final class DevelopmentAuthority: Sendable {
    /// The root certificate, which clients and servers must trust, as PEM text.
    public let certificatePEM: String
    /// The private key of the root as unencrypted PKCS #8 in PEM.
    public let privateKeyPEM: String

    private let root: Signer

    /// Creates an authority with a new key.
    ///
    /// - Parameters:
    ///   - name: The common name of the root.
    ///   - keyType: The type of the root's key.
    ///   - days: The number of days from now for which the root is valid.
    /// - Throws: `CertificateAuthorityError` if `name` does not have 1 to 64 characters.
    public convenience init(
        name: String, keyType: CertificateAuthority.KeyType = .p256, days: Int = 3650
    ) throws(CertificateAuthorityError) {
        var template = CertificateTemplate.authority(name: name, pathLength: 0)
        template.setValidity(days: days)
        try self.init(Signer(template, keyType: keyType, signedBy: nil))
    }

    /// Loads an authority from its root certificate and the private key of the root.
    ///
    /// - Throws: `CertificateAuthorityError` if a text cannot be decoded, if the key does not match the
    ///   certificate, or if the certificate is not marked as an authority.
    public convenience init(certificatePEM: String, privateKeyPEM: String) throws(CertificateAuthorityError) {
        let certificate = try X509Certificate(pem: certificatePEM)
        let key = try SigningKey(pem: privateKeyPEM)
        try CertificateCall.requireSuccess(
            "X509_check_private_key", or: .invalidAuthority, "the private key does not match the certificate of the authority"
        ) { X509_check_private_key(certificate.pointer, key.pointer) }
        guard X509_check_ca(certificate.pointer) == 1 else {
            throw CertificateAuthorityError(
                .invalidAuthority, "the certificate is not marked as an authority (CA:TRUE), so it cannot issue certificates",
                operation: "X509_check_ca")
        }
        try self.init(Signer(certificate: certificate, key: key))
    }

    private init(_ root: Signer) throws(CertificateAuthorityError) {
        self.root = root
        certificatePEM = try root.certificate.pem
        privateKeyPEM = try root.key.pem
    }

    /// Generates a key and issues a certificate for it.
    ///
    /// - Parameters:
    ///   - purpose: The purpose of the certificate, with its names.
    ///   - keyType: The type of the key.
    ///   - days: The number of days from now for which the certificate is valid. A negative number issues a
    ///     certificate that has expired.
    /// - Throws: `CertificateAuthorityError` if a name is not allowed in a certificate.
    public func issue(
        _ purpose: CertificateAuthority.Purpose, keyType: CertificateAuthority.KeyType = .p256, days: Int = 365
    ) throws(CertificateAuthorityError) -> IssuedCertificate {
        let template = try Self.template(for: purpose, keyType, days)
        return try IssuedCertificate(Signer(template, keyType: keyType, signedBy: root), intermediatePEM: nil)
    }

    /// Issues a certificate for the key in a signing request, and returns the certificate as PEM text.
    ///
    /// The key is from `request`. The names are from `purpose`: for the requested names, pass
    /// `request.purpose(isClient:)`.
    ///
    /// - Throws: `CertificateAuthorityError` if a name is not allowed in a certificate.
    public func issue(
        _ purpose: CertificateAuthority.Purpose, for request: CertificateRequest, days: Int = 365
    ) throws(CertificateAuthorityError) -> String {
        let key = try request.publicKey()
        let template = try Self.template(for: purpose, key.isRSA ? .rsa2048 : .p256, days)
        return try X509Certificate(template, key: key, signedBy: root).pem
    }

    /// Generates a key and issues a certificate that is signed with this key, so no authority vouches for
    /// it.
    public static func selfSigned(
        _ purpose: CertificateAuthority.Purpose, keyType: CertificateAuthority.KeyType = .p256, days: Int = 365
    ) throws(CertificateAuthorityError) -> IssuedCertificate {
        let template = try template(for: purpose, keyType, days)
        return try IssuedCertificate(Signer(template, keyType: keyType, signedBy: nil), intermediatePEM: nil)
    }

    private static func template(
        for purpose: CertificateAuthority.Purpose, _ keyType: CertificateAuthority.KeyType, _ days: Int
    ) throws(CertificateAuthorityError) -> CertificateTemplate {
        var template = try CertificateTemplate.leaf(for: purpose, validity: .current, keyType: keyType)
        template.setValidity(days: days)
        return template
    }
}

/// A certificate and its key. An authority's can sign others.
struct Signer: Sendable {
    let certificate: X509Certificate
    let key: SigningKey

    /// A new key, and a certificate for it; without a signer it signs itself.
    init(
        _ template: CertificateTemplate,
        keyType: CertificateAuthority.KeyType,
        signedBy signer: Signer?
    ) throws(CertificateAuthorityError) {
        key = try SigningKey(keyType)
        certificate = try X509Certificate(template, key: key, signedBy: signer)
    }
}

/// A certificate, the chain that leads to the authority's root, and the private key.
public struct IssuedCertificate: Sendable, Hashable {
    /// The certificate alone, as PEM text.
    public let certificatePEM: String
    /// The certificate and the intermediate that signed it (if one did), leaf first, as a server sends them;
    /// without the root.
    public let certificateChainPEM: String
    /// The private key, unencrypted, in PKCS #8 and PEM.
    public let privateKeyPEM: String
    /// The serial number in upper-case hexadecimal, two digits for each octet: 64 random bits.
    public let serialNumber: String

    init(_ signer: Signer, intermediatePEM: String?) throws(CertificateAuthorityError) {
        certificatePEM = try signer.certificate.pem
        certificateChainPEM = certificatePEM + (intermediatePEM ?? "")
        privateKeyPEM = try signer.key.pem
        serialNumber = signer.certificate.serialNumber
    }

    /// Writes the chain and the key to two new files in `directory`, which is made if it is missing, and
    /// answers their paths.
    ///
    /// The names contain the serial number, so that any number of certificates fit into one directory. Only
    /// the owner can read the key. Deleting the directory is up to you.
    @discardableResult
    public func write(to directory: String) throws(CertificateAuthorityError) -> (certificate: String, key: String) {
        let certificate = try PEMFile.write(
            certificateChainPEM, named: "certificate-\(serialNumber).pem", to: directory, isSecret: false)
        let key = try PEMFile.write(privateKeyPEM, named: "key-\(serialNumber).pem", to: directory, isSecret: true)
        return (certificate, key)
    }
}

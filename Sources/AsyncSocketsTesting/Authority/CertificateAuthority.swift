public import SocketTLS

/// A certificate authority that is generated at run time, for use in tests.
///
/// It consists of a root and an intermediate signed by the root, each with a new key. Make the side under
/// test trust the root, and give a server or client the result of `issue(_:validity:keyType:signedBy:)`:
///
///     let authority = try CertificateAuthority()
///     let server = try authority.issue(.server(names: ["localhost", "127.0.0.1"]))
///     let expired = try authority.issue(.server(names: ["localhost"]), validity: .expired)
///     let client = try authority.issue(.client(commonName: "Ada", email: "ada@example.org"))
///
/// Keys are not written to disk unless you request it. Every call generates a new key, which takes less
/// than a millisecond for P-256 and about a hundred milliseconds for RSA.
public final class CertificateAuthority: Sendable {
    /// The root certificate, which clients and servers must trust, as PEM text.
    public let rootPEM: String
    /// The certificate between the root and an issued certificate, as PEM text. Servers send it, and peers
    /// need not trust it.
    public let intermediatePEM: String

    private let root: Signer
    private let intermediate: Signer

    /// Creates a root and an intermediate, named `name` followed by "Root" and "Intermediate".
    ///
    /// - Throws: `CertificateAuthorityError` if a name exceeds the X.509 limit of 64 characters.
    public init(keyType: KeyType = .p256, name: String = "AsyncSockets Test") throws(CertificateAuthorityError) {
        root = try Signer(.authority(name: name + " Root", pathLength: 1), keyType: keyType, signedBy: nil)
        intermediate = try Signer(.authority(name: name + " Intermediate", pathLength: 0), keyType: keyType, signedBy: root)
        rootPEM = try root.certificate.pem
        intermediatePEM = try intermediate.certificate.pem
    }

    /// Generates a key and issues a certificate for it.
    ///
    /// To test a certificate for the wrong host, issue one for a different name. To test a certificate with
    /// the wrong key, combine the certificate from one call with the key from another.
    ///
    /// - Throws: `CertificateAuthorityError` if a name is not allowed in a certificate.
    public func issue(
        _ purpose: Purpose,
        validity: Validity = .current,
        keyType: KeyType = .p256,
        signedBy issuer: Issuer = .intermediate
    ) throws(CertificateAuthorityError) -> IssuedCertificate {
        let template = try CertificateTemplate.leaf(for: purpose, validity: validity, keyType: keyType)
        switch issuer {
        case .root:
            return try IssuedCertificate(Signer(template, keyType: keyType, signedBy: root), intermediatePEM: nil)
        case .intermediate:
            return try IssuedCertificate(
                Signer(template, keyType: keyType, signedBy: intermediate), intermediatePEM: intermediatePEM)
        }
    }

    /// Issues a certificate, signed by the root, for a DNS name that may look like an address.
    package func issue(hostName: String) throws(CertificateAuthorityError) -> IssuedCertificate {
        var template = try CertificateTemplate.leaf(
            for: .server(names: [], commonName: hostName), validity: .current, keyType: .p256)
        template.alternativeNames = [.dns(hostName)]
        return try IssuedCertificate(Signer(template, keyType: .p256, signedBy: root), intermediatePEM: nil)
    }

    package static func selfSigned(_ purpose: Purpose) throws(CertificateAuthorityError) -> IssuedCertificate {
        let template = try CertificateTemplate.leaf(for: purpose, validity: .current, keyType: .p256)
        return try IssuedCertificate(Signer(template, keyType: .p256, signedBy: nil), intermediatePEM: nil)
    }

    /// Writes the root certificate to `directory` and returns the file's path. Creates the directory if it
    /// does not exist.
    @discardableResult
    public func writeRoot(to directory: String) throws(CertificateAuthorityError) -> String {
        try PEMFile.write(rootPEM, named: "root-\(root.certificate.serialNumber).pem", to: directory, isSecret: false)
    }
}

extension CertificateAuthority {
    /// Trust roots that contain only the root certificate.
    public var roots: TLSTrustRoots {
        get throws(TLSError) { .certificates([try TLSCertificate(pem: rootPEM)]) }
    }

    /// Returns settings for a client that expects `serverName` and trusts only this authority.
    public func clientSettings(serverName: String) throws(TLSError) -> TLSClientSettings {
        var settings = TLSSettings.client(serverName: serverName)
        settings.trustRoots = try roots
        return settings
    }
}

extension CertificateAuthority {
    /// The purpose of a certificate.
    public enum Purpose: Sendable, Hashable {
        /// A TLS server. Each name is a DNS name, a wildcard such as "*.example.org" or an IP address, and
        /// becomes a subject alternative name. ASCII bytes that are invalid in DNS names (even NUL) are kept
        /// unchanged. The common name defaults to the first name of at most 64 bytes. Without names, the
        /// certificate has only a common name, which no TLS client should accept.
        case server(names: [String], commonName: String? = nil)
        /// A TLS client. The email address, if given, becomes a subject alternative name.
        case client(commonName: String, email: String? = nil)
    }

    /// A validity period. The authority itself is valid from one year ago until ten years from now.
    public enum Validity: Sendable, Hashable, CaseIterable {
        /// Valid from yesterday for one year.
        case current
        /// Expired yesterday, after one month.
        case expired
        /// Valid from tomorrow for one month.
        case notYetValid
        /// Valid from yesterday until ten minutes from now.
        case endsSoon
    }

    /// The type of a certificate's key.
    public enum KeyType: Sendable, Hashable, CaseIterable {
        /// ECDSA on NIST P-256. Fast to generate.
        case p256
        /// RSA with 2,048 bits. Slow to generate.
        case rsa2048
        /// RSA with 3,072 bits. Slower to generate than 2,048 bits, and five times as slow to sign with.
        case rsa3072
    }

    /// The authority's key that signs a certificate.
    public enum Issuer: Sendable, Hashable, CaseIterable {
        /// The root, so that the chain contains only the certificate.
        case root
        /// The intermediate, so that the chain contains the certificate and the intermediate.
        case intermediate
    }
}

public import SocketTLS

/// A certificate authority that is made at run time and lives as long as a test.
///
/// It has a root and an intermediate that the root has signed, each with a new key. Trust the root, and give
/// a server or a client what `issue(_:validity:keyType:signedBy:)` returns:
///
///     let authority = try CertificateAuthority()
///     let server = try authority.issue(.server(names: ["localhost", "127.0.0.1"]))
///     let expired = try authority.issue(.server(names: ["localhost"]), validity: .expired)
///     let client = try authority.issue(.client(commonName: "Ada", email: "ada@example.org"))
///
/// The keys are never written anywhere unless you ask for it. Every call makes a new key, which takes less
/// than a millisecond for P-256 and some hundred milliseconds for RSA.
public final class CertificateAuthority: Sendable {
    /// The certificate to trust, as PEM text.
    public let rootPEM: String
    /// The certificate between the root and an issued certificate, as PEM text. Servers send it; it need not
    /// be trusted.
    public let intermediatePEM: String

    private let root: Signer
    private let intermediate: Signer

    /// A new root and intermediate, named `name` followed by "Root" and "Intermediate".
    ///
    /// - Throws: `CertificateAuthorityError` if a name is longer than the 64 bytes that X.509 allows.
    public init(keyType: KeyType = .p256, name: String = "AsyncSockets Test") throws(CertificateAuthorityError) {
        root = try Signer(.authority(name: name + " Root", pathLength: 1), keyType: keyType, signedBy: nil)
        intermediate = try Signer(.authority(name: name + " Intermediate", pathLength: 0), keyType: keyType, signedBy: root)
        rootPEM = try root.certificate.pem
        intermediatePEM = try intermediate.certificate.pem
    }

    /// Makes a key and a certificate for it.
    ///
    /// For a certificate "for the wrong host", issue one for another name. For one "with the wrong key",
    /// combine the certificate of one call with the key of another.
    ///
    /// - Throws: `CertificateAuthorityError` if a name cannot be part of a certificate.
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

    /// A certificate, signed by the root, for a DNS name that may look like an address.
    package func issue(hostName: String) throws(CertificateAuthorityError) -> IssuedCertificate {
        var template = try CertificateTemplate.leaf(
            for: .server(names: [], commonName: hostName), validity: .current, keyType: .p256)
        template.alternativeNames = [.dns(hostName)]
        return try IssuedCertificate(Signer(template, keyType: .p256, signedBy: root), intermediatePEM: nil)
    }

    /// A certificate that no authority has signed.
    package static func selfSigned(_ purpose: Purpose) throws(CertificateAuthorityError) -> IssuedCertificate {
        let template = try CertificateTemplate.leaf(for: purpose, validity: .current, keyType: .p256)
        return try IssuedCertificate(Signer(template, keyType: .p256, signedBy: nil), intermediatePEM: nil)
    }

    /// Writes the root certificate to `directory`, which is made if it is missing, and returns the file's
    /// path.
    @discardableResult
    public func writeRoot(to directory: String) throws(CertificateAuthorityError) -> String {
        try PEMFile.write(rootPEM, named: "root-\(root.certificate.serialNumber).pem", to: directory, isSecret: false)
    }
}

extension CertificateAuthority {
    /// The root as the only trusted certificate.
    public var roots: TrustRoots {
        get throws(TLSError) { .certificates([try Certificate(pem: rootPEM)]) }
    }

    /// Settings of a client that expects `serverName` and trusts only this authority.
    public func clientSettings(serverName: String) throws(TLSError) -> TLSClientSettings {
        var settings = TLSSettings.client(serverName: serverName)
        settings.trustRoots = try roots
        return settings
    }
}

extension CertificateAuthority {
    /// The purpose of a certificate.
    public enum Purpose: Sendable, Hashable {
        /// A TLS server. Each name is a DNS name, a wildcard such as "*.example.org", or an IP address, and
        /// becomes a subject alternative name. ASCII bytes that a DNS name cannot have (even NUL) are not
        /// changed. The common name defaults to the first name. Without names the certificate has only a
        /// common name, which no TLS client should accept.
        case server(names: [String], commonName: String? = nil)
        /// A TLS client. The e-mail address, if there is one, becomes a subject alternative name.
        case client(commonName: String, email: String? = nil)
    }

    /// When a certificate is valid. The authority itself is valid from a year ago until ten years from now.
    public enum Validity: Sendable, Hashable, CaseIterable {
        /// Since yesterday, for a year.
        case current
        /// For a month that ended yesterday.
        case expired
        /// For a month that begins tomorrow.
        case notYetValid
        /// Since yesterday, for the next ten minutes.
        case endsSoon
    }

    /// The kind of a certificate's key.
    public enum KeyType: Sendable, Hashable, CaseIterable {
        /// ECDSA on NIST P-256, fast to make.
        case p256
        /// RSA with 2048 bits, slow to make.
        case rsa2048
        /// RSA with 3,072 bits, slower to make and five times as slow to sign with.
        case rsa3072
    }

    /// Which of the authority's two keys signs a certificate.
    public enum Issuer: Sendable, Hashable, CaseIterable {
        /// The root: the chain is the certificate alone.
        case root
        /// The intermediate: the chain is the certificate and the intermediate.
        case intermediate
    }
}

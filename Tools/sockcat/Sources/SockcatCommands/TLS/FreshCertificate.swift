internal import AsyncSockets
internal import AsyncSocketsTesting

/// A certificate for a server that was started without one. It is valid for a year and exists only in memory.
struct FreshCertificate: Sendable {
    let identity: TLSIdentity
    let certificate: TLSCertificate

    /// Generates a key and a certificate for the given host names and addresses.
    init(names: [String]) throws {
        identity = try DevelopmentAuthority.selfSigned(.server(names: names)).identity()
        guard let leaf = identity.certificateChain.first else { throw Failure("the new certificate is missing") }
        certificate = leaf
    }

    /// The digest of the key, for `--pin`.
    var pin: String { PinArgument.text(of: certificate) }

    /// The SHA-256 fingerprint of the certificate, in the form that OpenSSL prints.
    var fingerprint: String { Hexadecimal.text(certificate.sha256Fingerprint, separator: ":").uppercased() }
}

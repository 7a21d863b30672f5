internal import Glibc
public import SocketTLS

/// A certificate, its chain to the authority's root, and its private key.
public struct IssuedCertificate: Sendable, Hashable {
    /// The certificate without its chain, as PEM text.
    public let certificatePEM: String
    /// The certificate followed by the intermediate, if the intermediate signed it. This is the chain that
    /// a server sends, without the root.
    public let certificateChainPEM: String
    /// The private key as unencrypted PKCS #8 in PEM.
    public let privateKeyPEM: String
    /// The serial number, 64 random bits, in upper-case hexadecimal with two digits per octet.
    public let serialNumber: String

    init(_ signer: Signer, intermediatePEM: String?) throws(CertificateAuthorityError) {
        certificatePEM = try signer.certificate.pem
        certificateChainPEM = certificatePEM + (intermediatePEM ?? "")
        privateKeyPEM = try signer.key.pem
        serialNumber = signer.certificate.serialNumber
    }

    /// Writes the chain and the key to two new files in `directory` and returns their paths. Creates the
    /// directory if it does not exist.
    ///
    /// The file names contain the serial number, so a directory can hold any number of certificates. Only
    /// the owner can read the key file. The caller must delete the directory.
    @discardableResult
    public func write(to directory: String) throws(CertificateAuthorityError) -> (certificate: String, key: String) {
        let certificate = try PEMFile.write(
            certificateChainPEM, named: "certificate-\(serialNumber).pem", to: directory, isSecret: false)
        let key = try PEMFile.write(privateKeyPEM, named: "key-\(serialNumber).pem", to: directory, isSecret: true)
        return (certificate, key)
    }
}

extension IssuedCertificate {
    /// Returns the chain and the key in the form that `TLSSettings` expects.
    public func identity() throws(TLSError) -> TLSIdentity {
        try TLSIdentity(
            certificateChain: TLSCertificate.certificates(pem: certificateChainPEM), privateKey: TLSPrivateKey(pem: privateKeyPEM)
        )
    }
}

enum PEMFile {
    /// Creates a new file in `directory` and returns its path. Creates the directory (but not its parents)
    /// if it does not exist. Fails if the file already exists.
    static func write(
        _ text: String, named name: String, to directory: String, isSecret: Bool
    ) throws(CertificateAuthorityError) -> String {
        guard mkdir(directory, 0o700) == 0 || errno == EEXIST else { throw failure("mkdir", directory) }
        let path = directory + "/" + name
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, isSecret ? 0o600 : 0o644)
        guard descriptor >= 0 else { throw failure("open", path) }
        defer { close(descriptor) }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if written < 0 && errno == EINTR { continue }
            guard written > 0 else { throw failure("write", path) }
            rest = rest.dropFirst(written)
        }
        return path
    }

    private static func failure(_ operation: String, _ path: String) -> CertificateAuthorityError {
        let number = errno
        return CertificateAuthorityError(
            .fileNotWritten, "\"\(path)\" was not written: \(String(cString: strerror(number)))",
            operation: operation, errorNumber: number)
    }
}

internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// The options for this side's own certificate.
struct IdentityOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("The certificate chain to present, in PEM or DER.", valueName: "file"), completion: .file())
    var cert: String?

    @Option(
        help: ArgumentHelp(
            "The private key of the certificate. For --cert NAME.pem, defaults to NAME-key.pem if it exists, and otherwise to "
                + "the file of --cert.", valueName: "file"),
        completion: .file())
    var key: String?

    @Option(
        name: .customLong("p12"), help: ArgumentHelp("A PKCS #12 file with the certificate and its key.", valueName: "file"),
        completion: .file())
    var pkcs12: String?

    @Option(
        help: ArgumentHelp(
            "A file with the key's passphrase on its first line. Without this option, the passphrase is read from the "
                + "environment variable SOCKCAT_PASSPHRASE, or you are prompted for it.", valueName: "file"),
        completion: .file())
    var passphraseFile: String?

    func validate() throws {
        if key != nil, cert == nil { throw ValidationError("--key requires --cert: pass the certificate of the key") }
        if cert != nil, pkcs12 != nil { throw ValidationError("--cert and --p12 cannot be combined") }
    }

    /// The files that the options name, or `nil` without a certificate.
    var files: IdentityFiles? {
        IdentityFiles(certificate: cert, key: key, pkcs12: pkcs12, passphraseFile: passphraseFile)
    }
}

/// The files of a certificate and its private key.
struct IdentityFiles: Equatable, Sendable {
    enum Kind: Equatable, Sendable {
        case certificate(String, key: String)
        case pkcs12(String)
    }

    let kind: Kind
    let passphraseFile: String?

    /// Returns `nil` without a certificate.
    init?(certificate: String?, key: String?, pkcs12: String?, passphraseFile: String?) {
        if let pkcs12 {
            kind = .pkcs12(pkcs12)
        } else if let certificate {
            kind = .certificate(certificate, key: key ?? Self.defaultKey(of: certificate))
        } else {
            return nil
        }
        self.passphraseFile = passphraseFile
    }

    /// The file that `sockcat certificate` writes next to a certificate, if it exists. Otherwise the key is
    /// expected in the file of the certificate.
    private static func defaultKey(of certificate: String) -> String {
        guard certificate.hasSuffix(".pem") else { return certificate }
        let key = certificate.dropLast(4) + "-key.pem"
        return access(String(key), R_OK) == 0 ? String(key) : certificate
    }

    var paths: [String] {
        switch kind {
        case .certificate(let certificate, let key): certificate == key ? [key] : [certificate, key]
        case .pkcs12(let path): [path]
        }
    }

    /// Reads the files. Requests a passphrase on the terminal if the key is encrypted and no passphrase was
    /// given.
    func load() throws -> TLSIdentity {
        let passphrase = Passphrase(file: passphraseFile)
        switch kind {
        case .certificate(let certificate, let key):
            return try TLSIdentity(certificateFile: certificate, privateKeyFile: key) { try passphrase.read(for: key) }
        case .pkcs12(let path):
            return try TLSIdentity(pkcs12File: path) { try passphrase.read(for: path) }
        }
    }
}

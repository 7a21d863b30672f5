internal import ArgumentParser
internal import AsyncSocketsTesting

/// The type of a new key, as given on the command line.
enum KeyTypeName: String, CaseIterable, ExpressibleByArgument {
    case p256
    case rsa2048
    case rsa3072

    var keyType: CertificateAuthority.KeyType {
        switch self {
        case .p256: .p256
        case .rsa2048: .rsa2048
        case .rsa3072: .rsa3072
        }
    }
}

/// Where the commands read the authority and write their files.
struct DirectoryOptions: ParsableArguments {
    @Option(
        name: [.short, .long],
        help: ArgumentHelp("The directory for new files. It is created if it does not exist.", valueName: "directory"))
    var directory = "."

    @Flag(name: .long, help: "Replace existing files.")
    var force = false

    var output: OutputFiles { OutputFiles(directory: directory, replacesFiles: force) }
}

/// The authority that signs a certificate.
struct AuthorityOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The directory with the authority's ca.pem and ca-key.pem. The default is the directory for new files.",
            valueName: "directory"))
    var authority: String?

    func load(default directory: String) throws -> DevelopmentAuthority {
        let folder = authority ?? directory
        let (certificate, key) = (folder + "/" + AuthorityFiles.certificate, folder + "/" + AuthorityFiles.key)
        let existing = try? InputFile.text(certificate)
        guard let certificatePEM = existing else {
            throw Failure(
                "\"\(folder)\" does not contain an authority (\(AuthorityFiles.certificate))",
                advice: "create it with \"sockcat certificate authority --directory \(folder)\", or pass --authority DIRECTORY",
                status: .fileFailed)
        }
        return try CertificateFailure.translating("the authority in \"\(folder)\"") {
            try DevelopmentAuthority(certificatePEM: certificatePEM, privateKeyPEM: InputFile.text(key))
        }
    }
}

/// The names of an authority's files.
enum AuthorityFiles {
    static let certificate = "ca.pem"
    static let key = "ca-key.pem"
}

/// The passphrase of a new file.
struct PassphraseOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            A file with the passphrase of the PKCS #12 file on its first line. Without this option, the passphrase is read \
            from the environment variable SOCKCAT_PASSPHRASE, or you are prompted for it.
            """, valueName: "file"),
        completion: .file())
    var passphraseFile: String?

    func read(for path: String) throws -> String {
        let text: String
        do {
            text = try Passphrase(file: passphraseFile).read(for: path)
        } catch let failure as Failure where passphraseFile == nil {
            throw Failure(
                "the passphrase of \"\(path)\" is missing, and there is no terminal to prompt on",
                advice: "pass it with --passphrase-file or in the variable SOCKCAT_PASSPHRASE", status: failure.status)
        }
        if text.isEmpty { throw Failure.usage("the passphrase of \"\(path)\" is empty", advice: "pass a passphrase") }
        return text
    }
}

internal import ArgumentParser
internal import AsyncSocketsTesting

/// `sockcat certificate authority`: creates an authority.
struct AuthorityCommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "authority",
        abstract: "Create an authority that can issue certificates: ca.pem and ca-key.pem.",
        discussion: """
            To trust the authority, pass --ca ca.pem to sockcat, set SSL_CERT_FILE=ca.pem for programs that \
            use OpenSSL, or import ca.pem into your browser.

            EXAMPLES:
              sockcat certificate authority
              sockcat certificate authority --name "Ada's laptop" --directory ~/.sockcat
            """)

    @Option(help: "The name of the authority, 1 to 64 characters long.")
    var name = "sockcat development authority"

    @Option(name: .customLong("key-type"), help: "The type of the key: p256, rsa2048 or rsa3072.")
    var keyType = KeyTypeName.p256

    @Option(help: "The number of days for which the authority is valid.")
    var days = 3650

    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        try CertificateDays.validate(days)
    }

    func perform(_ reporter: Reporter) async throws {
        let authority = try CertificateFailure.translating("the authority \"\(name)\"") {
            try DevelopmentAuthority(name: name, keyType: keyType.keyType, days: days)
        }
        let paths = try files.output.write([
            .certificate(AuthorityFiles.certificate, authority.certificatePEM),
            .key(AuthorityFiles.key, authority.privateKeyPEM),
        ])
        reporter.wrote(paths)
        reporter.note("programs that trust \(paths[0]) accept every certificate from this authority: keep \(paths[1]) secret")
    }
}

/// The range of the option `--days`. The dates of certificates end in the year 9999.
enum CertificateDays {
    static func validate(_ days: Int) throws {
        guard days != 0 else { throw ValidationError("--days must not be 0: pass a negative number for an expired certificate") }
        guard (-36_500...36_500).contains(days) else {
            throw ValidationError("--days must be from -36500 to 36500, but is \(days)")
        }
    }
}

extension Reporter {
    /// Prints the paths of new files.
    func wrote(_ paths: [String]) {
        note("wrote \(paths.joined(separator: ", "))")
    }
}

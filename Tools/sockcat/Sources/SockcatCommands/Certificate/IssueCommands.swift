internal import ArgumentParser
internal import AsyncSocketsTesting

/// The options of all commands that issue a certificate.
struct IssueOptions: ParsableArguments {
    @Option(name: .customLong("key-type"), help: "The type of the key: p256, rsa2048 or rsa3072.")
    var keyType = KeyTypeName.p256

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "The number of days for which the certificate is valid. With a negative number, the certificate has already expired.")
    )
    var days = 365

    @Flag(name: .customLong("self-signed"), help: "Sign the certificate with its own key instead of an authority's.")
    var isSelfSigned = false

    @Flag(name: .customLong("p12"), help: "Also write NAME.p12, a PKCS #12 file with the certificate, its chain and the key.")
    var writesPKCS12 = false

    @OptionGroup var passphrase: PassphraseOptions

    @Option(name: .customLong("output-name"), help: "The name of the files. The default is the first name in the certificate.")
    var outputName: String?

    func validate() throws { try CertificateDays.validate(days) }

    /// Issues a certificate and writes its files.
    func issue(
        _ purpose: CertificateAuthority.Purpose, named name: String, _ authority: AuthorityOptions, _ files: DirectoryOptions,
        _ reporter: Reporter
    ) throws {
        let base = outputName ?? OutputFiles.baseName(for: name)
        let passphrase = writesPKCS12 ? try passphrase.read(for: "\(base).p12") : nil
        let authority = isSelfSigned ? nil : try authority.load(default: files.directory)
        let issued = try CertificateFailure.translating("the certificate for \"\(name)\"") {
            try authority?.issue(purpose, keyType: keyType.keyType, days: days)
                ?? DevelopmentAuthority.selfSigned(purpose, keyType: keyType.keyType, days: days)
        }
        var contents: [OutputFiles.File] = [
            .certificate("\(base).pem", issued.certificateChainPEM), .key("\(base)-key.pem", issued.privateKeyPEM),
        ]
        if let passphrase {
            let bytes = try PKCS12File.bytes(
                certificateChainPEM: issued.certificateChainPEM + (authority?.certificatePEM ?? ""),
                privateKeyPEM: issued.privateKeyPEM, name: name, passphrase: passphrase)
            contents.append(OutputFiles.File(name: "\(base).p12", bytes: bytes, isSecret: true))
        }
        reporter.wrote(try files.output.write(contents))
    }
}

/// `sockcat certificate server`: issues a certificate for a server.
struct ServerCertificateCommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "server",
        abstract: "Issue a certificate for a server.",
        discussion: """
            EXAMPLES:
              sockcat certificate server localhost 127.0.0.1 ::1
              sockcat certificate server '*.example.test' --key-type rsa2048 --days 30
              sockcat certificate server old.example.test --days -1    # expired
              sockcat certificate server localhost --self-signed
            """)

    @Argument(help: "The DNS names, wildcards and IP addresses of the server.")
    var names: [String]

    @OptionGroup(title: "Certificate") var issuing: IssueOptions
    @OptionGroup(title: "Authority") var authority: AuthorityOptions
    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func perform(_ reporter: Reporter) async throws {
        try CertificateName.validate(names)
        try issuing.issue(.server(names: names), named: names[0], authority, files, reporter)
    }
}

/// `sockcat certificate client`: issues a certificate for a client.
struct ClientCertificateCommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "client",
        abstract: "Issue a certificate for a client.",
        discussion: """
            EXAMPLES:
              sockcat certificate client ada
              sockcat certificate client "Ada Lovelace" --email ada@example.org --output-name ada
              sockcat certificate client ada --p12    # for a browser
            """)

    @Argument(help: "The name of the client, 1 to 64 characters long.")
    var name: String

    @Option(help: "The email address of the client.")
    var email: String?

    @OptionGroup(title: "Certificate") var issuing: IssueOptions
    @OptionGroup(title: "Authority") var authority: AuthorityOptions
    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func perform(_ reporter: Reporter) async throws {
        try issuing.issue(.client(commonName: name, email: email), named: name, authority, files, reporter)
    }
}

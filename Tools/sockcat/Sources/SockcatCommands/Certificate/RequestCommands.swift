internal import ArgumentParser
internal import AsyncSockets
internal import AsyncSocketsTesting
internal import FoundationEssentials
internal import Glibc

/// `sockcat certificate request`: creates a key and a signing request.
struct RequestCommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "request",
        abstract: "Create a key and a certificate signing request (CSR), for any authority to sign.",
        discussion: """
            EXAMPLES:
              sockcat certificate request www.example.org example.org
              sockcat certificate request --client ada --email ada@example.org
            """)

    @Argument(help: "The names of the server, or the name of the client.")
    var names: [String]

    @Flag(name: .customLong("client"), help: "Request a certificate for a client.")
    var isClient = false

    @Option(help: "The email address of the client.")
    var email: String?

    @Option(name: .customLong("key-type"), help: "The type of the key: p256, rsa2048 or rsa3072.")
    var keyType = KeyTypeName.p256

    @Option(name: .customLong("output-name"), help: "The name of the files. The default is the first name.")
    var outputName: String?

    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if isClient, names.count > 1 { throw ValidationError("--client takes one name, but there are \(names.count)") }
        if !isClient, email != nil { throw ValidationError("--email requires --client") }
    }

    func perform(_ reporter: Reporter) async throws {
        if !isClient { try CertificateName.validate(names) }
        let purpose: CertificateAuthority.Purpose =
            isClient ? .client(commonName: names[0], email: email) : .server(names: names)
        let (request, key) = try CertificateFailure.translating("the request for \"\(names[0])\"") {
            try CertificateRequest.generate(purpose, keyType: keyType.keyType)
        }
        let base = outputName ?? OutputFiles.baseName(for: names[0])
        let paths = try files.output.write([.certificate("\(base).csr", request.pem), .key("\(base)-key.pem", key)])
        reporter.wrote(paths)
        reporter.note("send \(paths[0]) to an authority, or sign it with \"sockcat certificate sign \(paths[0])\"")
    }
}

/// `sockcat certificate sign`: issues a certificate for a signing request.
struct SignCommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign",
        abstract: "Issue a certificate for a certificate signing request (CSR).",
        discussion: """
            The signature of the request is verified. The certificate contains only the names and the key \
            of the request, and none of its other attributes.

            EXAMPLES:
              sockcat certificate sign www.example.org.csr
              sockcat certificate sign --client ada.csr --days 30
              sockcat certificate sign a.csr --name www.example.org    # instead of its names
            """)

    @Argument(help: "The file with the request in PEM form. \"-\" is standard input.")
    var file: String

    @Flag(name: .customLong("client"), help: "Issue a certificate for a client.")
    var isClient = false

    @Option(name: .customLong("name"), help: "A name to certify instead of the names in the request. Repeatable.")
    var names: [String] = []

    @Option(parsing: .unconditional, help: "The number of days for which the certificate is valid.")
    var days = 365

    @Option(name: .customLong("output-name"), help: "The name of the file. The default is the first name.")
    var outputName: String?

    @OptionGroup(title: "Authority") var authority: AuthorityOptions
    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws { try CertificateDays.validate(days) }

    func perform(_ reporter: Reporter) async throws {
        if !isClient { try CertificateName.validate(names) }
        let authority = try authority.load(default: files.directory)
        let text = try InputFile.text(file)
        let (pem, name, emails) = try CertificateFailure.translating("the request in \"\(file)\"") {
            let request = try CertificateRequest(pem: text)
            // Somebody else chose these names.
            if !isClient, names.isEmpty {
                try CertificateName.validate(request.names.isEmpty ? request.commonName.map { [$0] } ?? [] : request.names)
            }
            let purpose = try purpose(of: request)
            return (
                try authority.issue(purpose, for: request, days: days), request.commonName ?? request.names.first, request.emails
            )
        }
        let base = outputName ?? OutputFiles.baseName(for: names.first ?? name ?? "certificate")
        for certificate in try TLSCertificate.certificates(pem: pem).prefix(1) {
            describe(certificate, emails: isClient ? emails.prefix(1) : [], reporter)
        }
        reporter.wrote(try files.output.write([.certificate("\(base).pem", pem)]))
    }

    /// Prints what the certificate contains, because somebody else may have written the request.
    private func describe(_ certificate: TLSCertificate, emails: ArraySlice<String>, _ reporter: Reporter) {
        let report = CertificateReport(certificate, at: Date())
        reporter.note("certificate of a \(isClient ? "client" : "server"): \(report.subject)")
        for name in report.names { reporter.note("name: \(name)") }
        for email in emails { reporter.note("email: \(email)") }
        reporter.note("key: \(report.key), \(report.pin)")
        reporter.note("valid until \(certificate.notAfter.gregorianText)")
    }

    private func purpose(of request: CertificateRequest) throws -> CertificateAuthority.Purpose {
        guard names.isEmpty else {
            return isClient ? .client(commonName: names[0], email: request.emails.first) : .server(names: names)
        }
        guard isClient || !request.names.isEmpty || request.commonName != nil else {
            throw Failure.usage("the request in \"\(file)\" contains no name", advice: "pass the name of the server with --name")
        }
        return request.purpose(isClient: isClient)
    }
}

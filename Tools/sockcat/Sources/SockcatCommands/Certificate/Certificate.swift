internal import ArgumentParser

/// `sockcat certificate`: issues certificates for tests and development.
struct Certificate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "certificate",
        abstract: "Create an authority and issue certificates for tests and development.",
        discussion: """
            Create an authority once, make your programs trust its ca.pem, and issue certificates. \
            Certificates are written to NAME.pem and keys to NAME-key.pem. Existing files are not replaced \
            without --force. To display a certificate, use "sockcat inspect NAME.pem".

            Never use these certificates in production: anyone who can read ca-key.pem can impersonate \
            any server to programs that trust ca.pem.

            EXAMPLES:
              sockcat certificate authority
              sockcat certificate server localhost 127.0.0.1 ::1
              sockcat certificate client ada --email ada@example.org
            """,
        subcommands: [
            AuthorityCommand.self, ServerCertificateCommand.self, ClientCertificateCommand.self, RequestCommand.self,
            SignCommand.self, PKCS12Command.self, TLSACommand.self,
        ])
}

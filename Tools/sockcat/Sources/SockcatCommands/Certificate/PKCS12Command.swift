internal import ArgumentParser
internal import AsyncSocketsTesting

/// `sockcat certificate pkcs12`: combines a certificate and its key in a file.
struct PKCS12Command: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "pkcs12",
        abstract: "Combine a certificate, its chain and its key in a PKCS #12 file.",
        discussion: """
            The file is encrypted with AES-256. The passphrase is not an argument, because other users can \
            read the arguments of a process.

            EXAMPLES:
              sockcat certificate pkcs12 ada.pem ada-key.pem --passphrase-file passphrase.txt
              pass show ada | sockcat certificate pkcs12 ada.pem ada-key.pem --passphrase-file /dev/stdin --add ca.pem
            """)

    @Argument(help: "The file with the certificate and its chain in PEM form.")
    var certificate: String

    @Argument(help: "The file with the private key in PEM form, unencrypted.")
    var key: String

    @OptionGroup var passphrase: PassphraseOptions

    @Option(name: .customLong("add"), help: "A file with further certificates, such as the authority's. Repeatable.")
    var additions: [String] = []

    @Option(help: "The name that programs display for the key. The default is the name of the certificate's file.")
    var name: String?

    @Option(name: .customLong("output-name"), help: "The name of the file. The default is the name of the certificate's file.")
    var outputName: String?

    @OptionGroup(title: "Files") var files: DirectoryOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    func perform(_ reporter: Reporter) async throws {
        let base = outputName ?? Self.baseName(ofFile: certificate)
        let passphrase = try passphrase.read(for: "\(base).p12")
        let chain = try ([certificate] + additions).map { try InputFile.text($0) }.joined(separator: "\n")
        let keyText = try InputFile.text(key)
        let bytes = try CertificateFailure.translating("\"\(certificate)\" and \"\(key)\"") {
            try PKCS12File.bytes(
                certificateChainPEM: chain, privateKeyPEM: keyText, name: name ?? base, passphrase: passphrase)
        }
        reporter.wrote(
            try files.output.write([OutputFiles.File(name: "\(base).p12", bytes: bytes, isSecret: true)]))
    }

    private static func baseName(ofFile path: String) -> String {
        let file = path.split(separator: "/").last.map(String.init) ?? path
        return file.hasSuffix(".pem") ? String(file.dropLast(4)) : file
    }
}

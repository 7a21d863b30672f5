internal import ArgumentParser
internal import AsyncSockets

/// `sockcat certificate tlsa`: prints the TLSA records of a certificate.
struct TLSACommand: SockcatCommand {
    static let configuration = CommandConfiguration(
        commandName: "tlsa",
        abstract: "Print the TLSA records to publish for a certificate and for its next key (DANE).",
        discussion: """
            The records are printed in the format of zone files, and advice is printed on standard error. Alternatives to \
            the recommended record are printed as comments. Publish records only in a zone that is signed with DNSSEC.

            To replace the key of a server, pass the next key with --next-key and publish both records first.

            EXAMPLES:
              sockcat certificate tlsa mail.pem --host mail.example.org --port 25
              sockcat certificate tlsa mail.pem --next-key next-key.pem --host mail.example.org --port 25
              sockcat connect --tls --tlsa "$(sockcat certificate tlsa --quiet server.pem)" localhost 8443
            """)

    @Argument(help: "The file with the server's certificate and its chain in PEM form. \"-\" is standard input.")
    var file: String

    @Option(
        help: ArgumentHelp(
            "The server's next private key, or a certificate with the next key, in PEM form.", valueName: "file"),
        completion: .file())
    var nextKey: String?

    @Option(help: ArgumentHelp("The host name of the server, which owns the records. Requires --port.", valueName: "name"))
    var host: String?

    @Option(help: ArgumentHelp("The port of the server, such as 25 or smtp. Requires --host.", valueName: "port"))
    var port: String?

    @Flag(help: "The server uses UDP (DTLS).")
    var udp = false

    @Option(
        help: ArgumentHelp(
            "A file with the passphrase of the next key on its first line. Defaults to the environment variable "
                + "SOCKCAT_PASSPHRASE or a prompt.", valueName: "file"),
        completion: .file())
    var passphraseFile: String?

    @OptionGroup(title: "Output") var output: OutputOptions

    func validate() throws {
        if (host == nil) != (port == nil) { throw ValidationError("--host and --port require each other") }
        if udp, host == nil { throw ValidationError("--udp requires --host and --port") }
    }

    func perform(_ reporter: Reporter) async throws {
        let owner = try host.map { try ownerName(of: $0, port ?? "") }
        let chain = try TLSACertificates.chain(in: file)
        guard let leaf = chain.first else { throw TLSACertificates.none(in: file) }
        if leaf.isAuthority, chain.count > 1 {
            throw Failure.usage(
                "the first certificate in \"\(file)\" is that of an authority", advice: "put the server's certificate first")
        }
        let current = try TLSARecord(for: leaf)
        let next = try nextKey.map { try TLSACertificates.record(ofKeyIn: $0, passphraseFile) }
        if next == current {
            throw Failure.usage(
                "the next key in \"\(nextKey ?? "")\" is the key of the certificate", advice: "pass the key that will replace it")
        }
        let zone = TLSAZoneText(owner: owner)
        var text = zone.record(current)
        if let next { text = text + zone.record(next) }
        if !output.quiet { text = text + zone.alternatives(leaf, chain) }
        try await DescriptorWriter.standardOutput().write(text)
        if leaf.isAuthority { reporter.note("the certificate is that of an authority: pass the server's own certificate") }
        advise(isRollover: next != nil, reporter)
    }

    /// The name that owns the records (RFC 6698, section 3).
    private func ownerName(of host: String, _ port: String) throws -> String {
        guard !host.hasPrefix("*"), !CertificateName.isAddress(host) else {
            throw Failure.usage("\"\(host)\" is not a host name", advice: "pass the name that clients connect to")
        }
        try CertificateName.validate([host])
        guard let number = ServicePort.number(port), number > 0 else { throw ServicePort.failure(port, from: 1) }
        return "_\(number)._\(udp ? "udp" : "tcp").\(host)."
    }

    /// RFC 7671, sections 8.1 and 8.4.
    private func advise(isRollover: Bool, _ reporter: Reporter) {
        guard isRollover else {
            reporter.note("the record remains valid if the certificate is renewed with the same key")
            reporter.note("before you replace the key, publish the record of the next key too: pass it with --next-key")
            return
        }
        reporter.note("1. publish both records. Wait until all name servers have them, and then twice the TTL of the old record")
        reporter.note("2. install the next key with its certificate on each server with this host name, and test it with")
        reporter.note("   \"sockcat inspect --tlsa\"")
        reporter.note("3. when no server uses the old key, remove the first record")
    }
}

/// Text in the format of zone files.
struct TLSAZoneText {
    /// The name that owns the records, or `nil` to print only their data.
    let owner: String?

    func record(_ record: TLSARecord) -> PrintableText {
        owner.map { "\($0) IN TLSA \(record.text)\n" } ?? "\(record.text)\n"
    }

    /// Records that could be published instead of the recommended record, as comments.
    func alternatives(_ leaf: TLSCertificate, _ chain: [TLSCertificate]) -> PrintableText {
        var lines: [PrintableText] = []
        let issuer = chain.dropFirst().first { $0.isAuthority && $0.subject == leaf.issuer }
        if let issuer, let record = try? TLSARecord(for: issuer, usage: .daneTA) {
            lines.append(
                "; or, for all certificates from \"\(issuer.subject)\", if the server sends the certificate of this authority:\n")
            lines.append("; \(self.record(record))")
        }
        if let record = try? TLSARecord(for: leaf, selector: .certificate) {
            lines.append("; or, for this certificate only, until it is renewed:\n")
            lines.append("; \(self.record(record))")
        }
        return lines.joined()
    }
}

/// Reads the certificates and keys that records are made for.
enum TLSACertificates {
    static func chain(in path: String) throws -> [TLSCertificate] {
        let text = try InputFile.text(path)
        do {
            return try TLSCertificate.certificates(pem: text)
        } catch {
            throw Failure(
                "\"\(path)\": \(error.message)", advice: "pass a file with a certificate in PEM form", status: .fileFailed,
                details: error.description)
        }
    }

    static func none(in path: String) -> Failure {
        Failure(
            "\"\(path)\" contains no certificate", advice: "pass a file with a certificate in PEM form", status: .fileFailed)
    }

    /// Returns the record of a private key, or of the key in a certificate.
    static func record(ofKeyIn path: String, _ passphraseFile: String?) throws -> TLSARecord {
        let text = try InputFile.text(path)
        if !text.contains("PRIVATE KEY-----"), let leaf = try? TLSCertificate.certificates(pem: text).first {
            return try TLSARecord(for: leaf)
        }
        let passphrase = Passphrase(file: passphraseFile)
        do throws(TLSError) {
            let key = try TLSPrivateKey(pem: text) { try passphrase.read(for: path) }
            return try TLSARecord(forPublicKey: key.publicKey ?? [])
        } catch {
            throw Failure(
                "\"\(path)\": \(error.message)", advice: "pass a file with a private key or a certificate in PEM form",
                status: .fileFailed, details: error.description)
        }
    }
}

import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat certificate tlsa`, compared with `openssl`.
@Suite(.timeLimit(.minutes(1))) struct TLSACommandTests {
    let folder: TestFolder

    init() async throws {
        folder = try TestFolder()
        for command in ["authority", "server mail.example.org --output-name mail", "request mail.example.org --output-name next"]
        {
            let outcome = try await run(command)
            #expect(outcome.status == 0, "\(outcome.errors)")
        }
    }

    private func run(_ arguments: String) async throws -> SockcatProcess.Outcome {
        try await SockcatProcess.run("certificate \(arguments)", in: folder)
    }

    /// The lines of a zone file. CR LF also ends a line, but is a single `Character`.
    private static func lines(_ text: String) -> [String] {
        text.utf8.split(separator: UInt8(ascii: "\n")).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The digest of a public key that `openssl` prints.
    private func digest(_ command: String, _ algorithm: String = "sha256") async throws -> String {
        let outcome = try await SockcatProcess.shell(
            "openssl \(command) | openssl pkey -pubin -outform der | openssl dgst -\(algorithm) -r", in: folder)
        return String(outcome.output.prefix { $0 != " " })
    }

    @Test func theRecommendedRecordIsFirst() async throws {
        let outcome = try await run("tlsa mail.pem --host mail.example.org --port smtp")
        let expected = "3 1 1 " + (try await digest("x509 -in mail.pem -noout -pubkey"))
        #expect(outcome.status == 0 && expected.count == 70)
        let lines = Self.lines(outcome.output)
        #expect(lines.first == "_25._tcp.mail.example.org. IN TLSA \(expected)")
        #expect(lines.dropFirst().allSatisfy { $0.hasPrefix(";") }, "\(outcome.output)")
        #expect(outcome.errors.contains("before you replace the key, publish the record of the next key too"))
    }

    @Test func aRolloverNeedsTheRecordsOfBothKeys() async throws {
        let outcome = try await run("tlsa --quiet mail.pem --next-key next-key.pem")
        let expected = [
            try await digest("x509 -in mail.pem -noout -pubkey"), try await digest("pkey -in next-key.pem -pubout"),
        ]
        #expect(outcome.output == expected.map { "3 1 1 \($0)\n" }.joined() && outcome.errors == "")
        let advice = try await run("tlsa mail.pem --next-key next-key.pem").errors
        #expect(Self.lines(advice).map { $0.prefix(2) } == ["1.", "2.", "  ", "3."], "\(advice)")
    }

    /// The next key may be in a certificate or in an encrypted file.
    @Test func theNextKeyHasSeveralForms() async throws {
        let signed = try await run("sign next.csr --output-name next")
        #expect(signed.status == 0, "\(signed.errors)")
        try folder.write("secret\n", to: "passphrase")
        let encrypted = try await SockcatProcess.shell(
            "openssl pkey -in next-key.pem -aes256 -passout pass:secret -out locked.pem", in: folder)
        #expect(encrypted.status == 0)
        let expected = try await run("tlsa --quiet mail.pem --next-key next-key.pem").output
        #expect(try await run("tlsa --quiet mail.pem --next-key next.pem").output == expected)
        #expect(try await run("tlsa --quiet mail.pem --next-key locked.pem --passphrase-file passphrase").output == expected)
    }

    /// A certificate may contain any text in the name of its issuer.
    @Test func certificatesOfAuthoritiesAddNoRecords() async throws {
        let made = try await SockcatProcess.shell(
            """
            set -e
            printf '[req]\\ndistinguished_name=d\\n[d]\\n' > q.cnf
            openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -config q.cnf -utf8 -out issuer.pem \
                -addext basicConstraints=critical,CA:TRUE -subj "/CN=a\n_1._tcp.x. IN TLSA 3 1 1 00"
            openssl req -newkey rsa:2048 -nodes -keyout l.pem -config q.cnf -subj /CN=mail -out leaf.csr
            openssl x509 -req -in leaf.csr -CA issuer.pem -CAkey k.pem -CAcreateserial -out leaf.pem
            cat leaf.pem issuer.pem > chain.pem
            cat leaf.pem mail.pem > strangers.pem
            cat issuer.pem leaf.pem > reversed.pem
            """, in: folder)
        #expect(made.status == 0, "\(made.errors)")
        #expect(try await run("tlsa strangers.pem").output.contains("2 1 1") == false)
        #expect(try await run("tlsa reversed.pem").errors.contains("is that of an authority"))
        #expect(try await run("tlsa issuer.pem").errors.contains("pass the server's own certificate"))
        let outcome = try await run("tlsa chain.pem")
        #expect(outcome.output.contains("for all certificates from \"CN=a\\0A_1._tcp"), "\(outcome.output)")
        #expect(Self.lines(outcome.output).count { !$0.hasPrefix(";") } == 1, "\(outcome.output)")
    }

    @Test(arguments: [
        ("tlsa mail.pem --next-key mail-key.pem", SockcatCommands.ExitStatus.usage, "is the key of the certificate"),
        ("tlsa mail.pem --host mail.example.org", .usage, "--host and --port require each other"),
        ("tlsa mail.pem --host 192.0.2.1 --port 25", .usage, "\"192.0.2.1\" is not a host name"),
        ("tlsa mail.pem --host '*.example.org' --port 25", .usage, "\"*.example.org\" is not a host name"),
        ("tlsa mail.pem --host mail.example.org --port 0", .usage, "\"0\" is not a port"),
        ("tlsa mail-key.pem", .fileFailed, "mail-key.pem"), ("tlsa none.pem", .fileFailed, "cannot open \"none.pem\""),
        ("tlsa mail.pem --next-key next.csr", .fileFailed, "next.csr"),
    ]) func mistakesAreExplained(arguments: String, status: SockcatCommands.ExitStatus, message: String) async throws {
        let outcome = try await run(arguments)
        #expect(outcome.status == status.rawValue && outcome.errors.contains(message), "\(outcome.errors)")
        #expect(outcome.output == "")
    }
}

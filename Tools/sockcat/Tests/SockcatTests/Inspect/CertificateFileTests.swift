import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat inspect` of files. A file is a list of certificates, and `openssl` prints the same list.
@Suite(.timeLimit(.minutes(2))) struct CertificateFileTests {
    let folder: TestFolder

    /// The folder contains a server's chain and key, an expired certificate of another authority, and files
    /// in all formats.
    init() async throws {
        folder = try TestFolder()
        try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
        let expired = try CertificateAuthority(name: "Other").issue(.server(names: ["old.example"]), validity: .expired)
        try folder.write(expired.certificatePEM, to: "expired.pem")
        let made = try await SockcatProcess.shell(
            """
            cat server.pem expired.pem > several.pem && cat server.key several.pem > key.pem &&
            { echo 0 a line of text; cat several.pem; } > text.pem && cat expired.pem server.key server.pem > mixed.pem &&
            openssl x509 -in expired.pem -outform der -out expired.der &&
            export='openssl pkcs12 -export -passout pass:secret' &&
            $export -in server.pem -inkey server.key -certfile expired.pem -out three.p12 &&
            $export -in server.pem -inkey server.key -certfile expired.pem -legacy -out legacy.p12 &&
            $export -in several.pem -nokeys -out keyless.p12 &&
            openssl pkcs12 -export -passout pass: -in several.pem -nokeys -out unencrypted.p12 -keypbe NONE -certpbe NONE
            """, in: folder)
        try #require(made.status == 0, "\(made.errors)")
    }

    private func inspect(_ file: String) async throws -> (status: Int32, report: InspectionReport) {
        let outcome = try await SockcatProcess.shell(
            "sockcat inspect --json \(file)", in: folder, environment: ["SOCKCAT_PASSPHRASE": "secret"])
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        return (outcome.status, try decoder.decode(InspectionReport.self, from: Data(outcome.output.utf8)))
    }

    /// The fingerprints of the certificates that `openssl` lists.
    private func fingerprints(_ file: String) async throws -> [String] {
        let passphrase = file == "unencrypted.p12" ? "" : "secret"
        let list =
            switch (file as NSString).pathExtension {
            case "p12": "openssl pkcs12 -in \(file) -nokeys -passin pass:\(passphrase) \(file == "legacy.p12" ? "-legacy" : "")"
            case "der": "openssl x509 -inform der -in \(file)"
            default: "cat \(file)"
            }
        let outcome = try await SockcatProcess.shell(list, in: folder)
        return try TLSCertificate.certificates(pem: outcome.output).map { Hexadecimal.text($0.sha256Fingerprint) }
    }

    @Test func standardInputIsAFile() async throws {
        let (status, report) = try await inspect("- < several.pem")
        #expect(status == InspectionReport.Status.untrusted.exitStatus.rawValue)
        #expect(report.target == "-" && report.certificates.count == 3)
    }

    @Test(arguments: [
        ("three.p12", 3), ("legacy.p12", 3), ("keyless.p12", 3), ("unencrypted.p12", 3), ("several.pem", 3), ("key.pem", 3),
        ("text.pem", 3), ("mixed.pem", 3), ("expired.der", 1),
    ])
    func everyCertificateIsShownAndJudged(file: String, count: Int) async throws {
        let (status, report) = try await inspect(file)
        let expected = try await fingerprints(file)
        #expect(expected.count == count)
        #expect(report.certificates.map(\.fingerprint) == expected)
        #expect(status == ExitStatus.untrusted.rawValue)
        #expect(report.problems.map(\.code) == [.expired])
        #expect((report.daysLeft ?? 0) < 0)
    }

    @Test func aWrongPassphraseAndOtherDataAreErrors() async throws {
        let wrong = try await SockcatProcess.shell(
            "sockcat inspect three.p12", in: folder, environment: ["SOCKCAT_PASSPHRASE": "wrong"])
        #expect(wrong.status == ExitStatus.fileFailed.rawValue)
        #expect(wrong.output.contains("hint: pass the passphrase with --passphrase-file"))
        try folder.write("0 is the first byte of DER\n", to: "other")
        let other = try await inspect("other")
        #expect(other.status == ExitStatus.fileFailed.rawValue)
        #expect(other.report.failure?.advice == "pass a file with a certificate in PEM, DER or PKCS #12 form")
    }

    // MARK: - Dates

    @Test func anUnreadableDateIsNotShownAsADate() async throws {
        var der = try TLSCertificate(pem: folder.text("server.pem")).derBytes
        let places = der.indices.dropLast(14).filter { der[$0...].starts(with: [0x17, 13]) && der[$0 + 14] == UInt8(ascii: "Z") }
        let end = try #require(places.last)
        der.replaceSubrange((end + 2)..<(end + 15), with: Array("279901000000Z".utf8))
        try Data(der).write(to: URL(fileURLWithPath: folder.path("unreadable.der")))
        let (status, report) = try await inspect("unreadable.der")
        #expect(status == ExitStatus.untrusted.rawValue)
        #expect(report.problems.map(\.code) == [.unreadableDate])
        #expect(report.daysLeft == nil && report.certificates.first?.notAfter == nil)
        let text = try await SockcatProcess.run("inspect unreadable.der", in: folder).output
        #expect(text.contains(" to a date that cannot be read\n"))
        #expect(!text.contains("1970") && !text.contains("expired"), "\(text)")
    }

    /// `openssl` uses the Gregorian calendar for all years.
    @Test(arguments: [
        "00000101000000Z", "00010101000000Z", "10000228000000Z", "15160229120000Z", "15821004235959Z", "15821015000000Z",
        "19000301000000Z",
    ])
    func oldDatesAreGregorian(date: String) async throws {
        let made = try await SockcatProcess.shell(
            """
            printf '%s\\n' '[ca]' 'default_ca=d' '[d]' 'new_certs_dir=.' 'database=index' 'serial=serial' 'default_md=sha256' \
            'policy=p' '[p]' 'commonName=supplied' > ca.conf && : > index && echo 01 > serial &&
            openssl req -new -key server.key -subj /CN=old -out old.csr &&
            openssl ca -config ca.conf -batch -selfsign -keyfile server.key -in old.csr -out old.pem -notext \
            -startdate \(date) -enddate 99991231235959Z && openssl x509 -in old.pem -noout -startdate -dateopt iso_8601
            """, in: folder)
        try #require(made.status == 0, "\(made.errors)")
        // openssl prints "notBefore=   1-01-01 00:00:00Z".
        let parts = made.output.split(separator: "=")[1].split(whereSeparator: \.isWhitespace)
        let expected = String(repeating: "0", count: max(0, 10 - parts[0].count)) + parts.joined(separator: "T")
        let outcome = try await SockcatProcess.run("inspect old.pem", in: folder)
        #expect(outcome.output.contains("\(expected) to 9999-12-31T23:59:59Z, "), "\(expected): \(outcome.output)")
        let json = try await SockcatProcess.run("inspect --json old.pem", in: folder)
        #expect(json.output.contains("\"notBefore\":\"\(expected)\""), "\(json.output)")
    }
}

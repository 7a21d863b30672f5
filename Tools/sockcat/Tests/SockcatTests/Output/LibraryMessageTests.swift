import ArgumentParser
import Foundation
import Testing

@testable import SockcatCommands

/// People who use the program do not know the names of the library's properties and functions.
@Suite struct LibraryMessageTests {
    private static let sources = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../../../Sources")
    private static let modules = ["AsyncSockets", "SocketCore", "SocketTLS", "StartTLSProtocols", "AsyncSocketsTesting"]

    /// The code of the library, without comments.
    private static let lines = modules.flatMap { code(in: sources.appending(path: $0)) }

    private static func code(in folder: URL) -> [String] {
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        return (files?.compactMap { $0 as? URL } ?? []).filter { $0.pathExtension == "swift" }.flatMap { url in
            // LibraryMessage lists names in order to replace them.
            url.lastPathComponent == "LibraryMessage.swift"
                ? [] : ((try? String(contentsOf: url, encoding: .utf8)) ?? "").split(separator: "\n").map(String.init)
        }.filter { !$0.drop { $0 == " " }.hasPrefix("//") }
    }

    /// The names that consist of several words, such as "maxLength", and the names of functions.
    private static let names: Set<String> = {
        let declaration = #/\b(?:var|let|func|case|struct|class|enum|protocol|typealias) (\w+)/#
        let declared = lines.flatMap { $0.matches(of: declaration).map { String($0.1) } }
        return Set(declared.filter { $0.firstMatch(of: #/[a-z][0-9]*[A-Z]|^D?TLS[A-Z]/#) != nil }).subtracting(terms)
    }()

    private static let terms: Set = ["MySQL", "ClientHello", "StartTLS", "SubjectPublicKeyInfo"]

    /// The messages in code, with "0" for the values that are inserted into them.
    private static func messages(in lines: [String]) -> [String] {
        lines.flatMap { line in
            line.matches(of: #/"((?:[^"\\]|\\\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\\.)*)"/#).map { match in
                String(match.1).replacing(#/\\\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)/#, with: "0").replacing("\\\"", with: "\"")
            }
        }.filter { $0.contains(" ") }
    }

    @Test func noMessageNamesAPropertyOrFunction() {
        let messages = Self.messages(in: Self.lines)
        #expect(messages.count > 500 && Self.names.count > 500)
        let named = messages.filter { message in Self.words(of: message).contains { Self.names.contains($0) } }
        #expect(named.count > 40, "the scan finds the names in the library's messages")
        for message in messages {
            let translated = LibraryMessage.translated(message)
            #expect(Self.words(of: translated).filter { Self.names.contains($0) } == [], "\(message) → \(translated)")
            #expect(!translated.isEmpty && !translated.contains("()"), "\(message)")
        }
    }

    /// The messages and help texts of the program itself.
    @Test func theProgramsOwnTextsNameNoneEither() {
        let messages = Self.messages(in: Self.code(in: Self.sources.appending(path: "../Tools/sockcat/Sources")))
        #expect(messages.count > 200)
        for message in messages {
            #expect(Self.words(of: message).filter { Self.names.contains($0) } == [], "\(message)")
        }
    }

    private static func words(of message: String) -> [String] {
        let quoted = message.split(separator: "\"", omittingEmptySubsequences: false).enumerated()
        return quoted.filter { $0.offset.isMultiple(of: 2) }.flatMap { $0.element.matches(of: #/\w+/#).map { String($0.0) } }
    }

    @Test(arguments: [
        ("the deadline of withDeadline expired", "the time limit expired"),
        ("no data was received or sent for 1.0 seconds (idleTimeout)", "no data was received or sent for 1.0 seconds"),
        (
            "\"a.p12\" is encrypted with RC2, which is too weak: encrypt it with AES or set allowsLegacyAlgorithms",
            "\"a.p12\" is encrypted with RC2, which is too weak"
        ),
        ("\"maxLength\" is not a host", "\"maxLength\" is not a host"),
        ("\"a.p12\" is in PKCS#12 format: use TLSIdentity(pkcs12File:passphrase:)", "\"a.p12\" is in PKCS#12 format"),
        ("\"a.pem\" is in PEM format, not PKCS#12: use TLSIdentity(pem:)", "\"a.pem\" is in PEM format, not PKCS#12"),
        ("the peer is not one of the proxies in sources", "the peer is not one of the addresses of --proxy-in"),
        ("unix:/tmp/mySocketDir/someName: no such file", "unix:/tmp/mySocketDir/someName: no such file"),
        ("listen: unix:/tmp/mySocketDir", "listen: unix:/tmp/mySocketDir"),
        ("encrypted with pbeWithSHA1And40BitRC2-CBC", "encrypted with pbeWithSHA1And40BitRC2-CBC"),
        ("clients is not .certificatesOnRequest in the settings", "clients is not certificates on request in the settings"),
    ]) func messagesAreRewritten(message: String, expected: String) {
        #expect(LibraryMessage.translated(message) == expected)
    }

    // MARK: - Hints

    @Test func hintsNameOnlyOptionsOfTheirCommand() {
        let failure = Failure("x", advice: "pass the authority's certificate with --ca FILE")
        #expect(OptionNames(of: Connect.self).adapted(failure).advice == failure.advice)
        #expect(OptionNames(of: Relay.self).adapted(failure).advice == nil)
        #expect(OptionNames(of: Relay.self).adapted(failure.ofTargetOptions).advice?.contains("--to-ca") == true)
        #expect(OptionNames(of: Listen.self).adapted(failure).advice == nil)
        let plain = Failure("x", advice: "check the spelling")
        #expect(OptionNames(of: Listen.self).adapted(plain) == plain)
    }

    /// The key of the target is found beside its certificate, as for all other certificates.
    @Test func theHintsOfARelayNameTheOptionsOfItsTarget() async throws {
        let folder = try TestFolder()
        let relay = "relay --listen 127.0.0.1:0 --to localhost:1 --to-tls --to-cert"
        let created = try await SockcatProcess.shell(
            "sockcat certificate authority; sockcat certificate client ada; cp ada.pem alone.pem", in: folder)
        try #require(created.status == 0)
        let alone = try await SockcatProcess.run("\(relay) alone.pem", in: folder)
        #expect(alone.errors.contains("hint: pass the file of the private key with --to-key"), "\(alone)")
        let server = try await SockcatServer("\(relay) ada.pem", in: folder)
        await server.stop()
    }

    @Test(arguments: [
        ("connect --tls --p12 x.p12 localhost 1", "Error"), ("listen 99999", "Error"), ("relay", "Error"),
        ("certificate server", "Error"), ("bench requests localhost 1 --connections 0", "Error"), ("unknown", "Error"),
        ("connect localhost", "Error"), ("inspect --days x a", "Error"),
    ]) func allErrorsHaveOneForm(arguments: String, unwanted: String) async throws {
        let outcome = try await SockcatProcess.run(arguments, in: TestFolder())
        #expect(outcome.errors.hasPrefix("sockcat: "), "\(outcome)")
        #expect(!outcome.errors.contains(unwanted))
        #expect(outcome.status != 0 && outcome.output.isEmpty)
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

@Suite(.timeLimit(.minutes(1))) struct ConnectTLSTests {
    let folder: TestFolder
    let authority: CertificateAuthority

    init() throws {
        folder = try TestFolder()
        authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost", "mail.example"]), by: authority, to: "server")
    }

    private func echoServer(_ options: String = "") async throws -> SockcatServer {
        try await SockcatServer("listen --echo --tls --cert server.pem --key server.key \(options) localhost:0", in: folder)
    }

    @Test func theAuthorityOfAFileIsTrusted() async throws {
        let server = try await echoServer("--alpn h2 --alpn http/1.1")
        let outcome = try await SockcatProcess.run(
            "connect -v --tls --ca ca.pem --alpn http/1.1 localhost \(server.port)", input: "hello", in: folder)
        #expect(outcome.status == 0)
        #expect(outcome.output == "hello")
        #expect(outcome.errors.contains("* secure: TLSv1.3, "))
        #expect(outcome.errors.contains("ALPN http/1.1"))
        await server.stop()
    }

    /// Each side limits the versions and cipher suites.
    @Test(arguments: [
        ("", "--tls-version 1.2", "* secure: TLSv1.2, "), ("", "--tls-version 1.2..1.3", "* secure: TLSv1.3, "),
        ("--tls-version 1.2", "", "* secure: TLSv1.2, "),
        ("", "--cipher-suite TLS_CHACHA20_POLY1305_SHA256", "* secure: TLSv1.3, TLS_CHACHA20_POLY1305_SHA256"),
        (
            "--cipher-suite ECDHE-ECDSA-AES128-GCM-SHA256", "",
            "* secure: TLSv1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        ),
        ("--cipher-suite TLS_AES_128_GCM_SHA256", "--tls-version 1.2", nil),
        ("--tls-version 1.3", "--tls-version 1.2", nil), ("--tls-version 1.2", "--tls-version 1.3", nil),
    ]) func versionsAndCipherSuitesAreLimited(server: String, client: String, secured: String?) async throws {
        let server = try await echoServer(server)
        let outcome = try await SockcatProcess.run(
            "connect -v --tls --ca ca.pem \(client) localhost \(server.port)", input: "hello", in: folder)
        let status: SockcatCommands.ExitStatus = secured == nil ? .handshakeFailed : .success
        #expect(outcome.status == status.rawValue, "\(outcome.errors)")
        if let secured { #expect(outcome.errors.contains(secured), "\(outcome.errors)") }
        await server.stop()
    }

    @Test func anUnknownCipherSuiteIsAMistake() async throws {
        let outcome = try await SockcatProcess.run("connect --tls --cipher-suite NULL-SHA256 localhost 1", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue && outcome.errors.contains("\"NULL-SHA256\""), "\(outcome.errors)")
        let server = try await SockcatProcess.run(
            "listen --tls --cert server.pem --key server.key --cipher-suite NULL-SHA256 localhost:0", in: folder)
        #expect(server.status == ExitStatus.usage.rawValue && server.errors.contains("\"NULL-SHA256\""))
    }

    /// A server accepts early data only with `--early-data`.
    @Test(arguments: [false, true]) func aServerAcceptsEarlyDataOnRequest(accepts: Bool) async throws {
        let server = try await echoServer(accepts ? "--early-data" : "")
        try folder.write("early ", to: "early")
        let connect = "connect -v --tls --ca ca.pem --resume session localhost \(server.port)"
        let first = try await SockcatProcess.run(connect, input: "hello", in: folder)
        #expect(first.status == 0, "\(first.errors)")
        let second = try await SockcatProcess.run("\(connect) --early-data early", input: "late", in: folder)
        #expect(second.status == 0 && second.output == "early late", "\(second.errors)")
        #expect(second.errors.contains(", resumed"))
        #expect(second.errors.contains("early data accepted") == accepts)
        await server.stop()
    }

    @Test func anUnknownAuthorityIsRejectedBeforeAnyDataIsSent() async throws {
        let server = try await SockcatServer(
            "listen --keep-open --tls --cert server.pem --key server.key localhost:0", in: folder, output: "received")
        let outcome = try await SockcatProcess.run("connect --tls localhost \(server.port)", input: "secret", in: folder)
        #expect(outcome.status == ExitStatus.untrusted.rawValue)
        #expect(outcome.errors.contains("hint: pass the authority's certificate with --ca FILE"))
        await server.stop()
        #expect(try folder.text("received").isEmpty)
    }

    @Test func anotherNameIsRejectedUnlessItIsExpected() async throws {
        let server = try await echoServer()
        let wrong = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --sni other.example localhost \(server.port)", in: folder)
        #expect(wrong.status == ExitStatus.untrusted.rawValue)
        #expect(
            wrong.errors.contains("hint: pass one of the names of the certificate with --sni: \"localhost\", \"mail.example\""))
        let right = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --sni mail.example localhost \(server.port)", in: folder)
        #expect(right.status == 0)
        await server.stop()
    }

    @Test func acceptingAnyCertificatePrintsARedWarning() async throws {
        let server = try await echoServer()
        let outcome = try await SockcatProcess.run(
            "connect --quiet --tls --insecure --color always localhost \(server.port)", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        #expect(outcome.errors.hasPrefix("\u{1B}[31;1mwarning: --insecure accepts any certificate"))
        await server.stop()
    }

    @Test func aPinAloneIsEnoughForANewCertificate() async throws {
        let server = try await SockcatServer("listen --echo --tls localhost:0", in: folder)
        let pin = try #require(try await server.line(containing: "--pin-only").split(separator: " ").last)
        let right = try await SockcatProcess.run(
            "connect --tls --pin-only --pin \(pin) localhost \(server.port)", input: "hello", in: folder)
        #expect(right == .init(status: 0, output: "hello", errors: ""))
        let other = String(repeating: "00", count: 32)
        let wrong = try await SockcatProcess.run(
            "connect --tls --pin-only --pin \(other) localhost \(server.port)", input: "hello", in: folder)
        #expect(wrong.status == ExitStatus.untrusted.rawValue)
        await server.stop()
    }

    @Test func clientsWithoutARequiredCertificateAreRejected() async throws {
        try folder.issue(.client(commonName: "Ada"), by: authority, to: "client")
        let server = try await echoServer("--client-ca ca.pem")
        let without = try await SockcatProcess.run("connect --tls --ca ca.pem localhost \(server.port)", in: folder)
        #expect(without.status == ExitStatus.handshakeFailed.rawValue)
        #expect(without.errors.contains("hint: pass a certificate with --cert and --key"))
        let with = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --cert client.pem --key client.key localhost \(server.port)", input: "hello", in: folder)
        #expect(with.output == "hello")
        await server.stop()
    }

    @Test func aSessionInAFileIsResumedAndCarriesEarlyData() async throws {
        let server = try await echoServer()
        try folder.write("early ", to: "early")
        let command = "connect -v --tls --ca ca.pem --resume session localhost \(server.port)"
        let first = try await SockcatProcess.run(command, input: "one", in: folder)
        #expect(!first.errors.contains("resumed"))
        let second = try await SockcatProcess.run(command, input: "two", in: folder)
        #expect(second.errors.contains("resumed"))
        let third = try await SockcatProcess.run("\(command) --early-data early", input: "three", in: folder)
        #expect(third.output == "early three")
        #expect(try FileManager.default.attributesOfItem(atPath: folder.path("session"))[.posixPermissions] as? Int == 0o600)
        await server.stop()
    }

    @Test func aPreSharedKeyReplacesCertificates() async throws {
        let key = "sensor:\(String(repeating: "0a", count: 32))"
        try folder.write(key, to: "key")
        let server = try await SockcatServer("listen --echo --dtls --psk @key 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run(
            "connect -v --dtls --psk \(key) --linger 300ms 127.0.0.1 \(server.port)", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        #expect(outcome.errors.contains("the pre-shared key \"sensor\""))
        await server.stop()
    }

    @Test func theSecretsAreLoggedForWireshark() async throws {
        let server = try await echoServer()
        let outcome = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --keylog secrets localhost \(server.port)", in: folder)
        #expect(outcome.status == 0)
        #expect(try folder.text("secrets").contains("CLIENT_HANDSHAKE_TRAFFIC_SECRET"))
        await server.stop()
    }

    @Test func aPKCS12FileContainsTheCertificateAndItsKey() async throws {
        try folder.issue(.client(commonName: "Ada"), by: authority, to: "client")
        let server = try await echoServer("--client-ca ca.pem")
        let outcome = try await SockcatProcess.shell(
            """
            openssl pkcs12 -export -in client.pem -inkey client.key -passout pass:secret -out client.p12
            echo secret > passphrase; export SOCKCAT_PASSPHRASE=wrong
            echo hello | sockcat connect --tls --ca ca.pem --p12 client.p12 --passphrase-file passphrase localhost \(server.port)
            sockcat connect --tls --ca ca.pem --p12 client.p12 localhost \(server.port)
            """, in: folder)
        #expect(outcome.output == "hello\n")
        #expect(outcome.status == ExitStatus.fileFailed.rawValue)
        #expect(outcome.errors.contains("hint: pass the passphrase with --passphrase-file or in SOCKCAT_PASSPHRASE"))
        await server.stop()
    }

    @Test func aProxyForwardsTheConnectionAndReceivesTheCredentials() async throws {
        let server = try await echoServer()
        let proxy = try SocketListener(port: 0, interface: "127.0.0.1")
        async let _ = proxy.run { client in
            let request = String(decoding: try await client.read(until: Data("\r\n\r\n".utf8)), as: UTF8.self)
            #expect(request.hasPrefix("CONNECT localhost:\(server.port) "))
            #expect(request.contains("Basic \(Data("ada:secret".utf8).base64EncodedString())"))
            try await client.write("HTTP/1.1 200 OK\r\n\r\n")
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: server.port) { _ = try await client.relay(with: $0) }
        }
        let outcome = try await SockcatProcess.run(
            "connect --proxy http://ada:secret@127.0.0.1:\(proxy.localPort) --tls --ca ca.pem localhost \(server.port)",
            input: "hello", in: folder)
        #expect(outcome == .init(status: 0, output: "hello", errors: ""))
        await proxy.close(timeout: .zero)
        await server.stop()
    }
}

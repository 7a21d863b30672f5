import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// The option `--tlsa`, with servers of this program.
@Suite(.timeLimit(.minutes(2))) struct TLSARecordTests {
    let folder: TestFolder
    /// The records of the server's key, and of a key that no server has.
    let right: String
    let wrong = "3 1 1 " + String(repeating: "ab", count: 32)

    init() throws {
        folder = try TestFolder()
        let issued = try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
        let leaf = try #require(TLSCertificate.certificates(pem: issued.certificateChainPEM).first)
        right = try TLSARecord(for: leaf).text
    }

    private func server(_ transport: String = "--tls") async throws -> SockcatServer {
        try await SockcatServer("listen --echo \(transport) --cert server.pem --key server.key localhost:0", in: folder)
    }

    /// The record needs no authority. It is also found among others.
    @Test(arguments: ["--tls", "--dtls", "--starttls smtp"]) func aMatchingRecordIsReported(transport: String) async throws {
        let server = try await server(transport)
        let outcome = try await SockcatProcess.run(
            "connect -v \(transport) --tlsa '\(wrong)' --tlsa '\(right)' localhost \(server.port)", input: "hello\n", in: folder)
        await server.stop()
        #expect(outcome.status == 0 && outcome.output == "hello\n", "\(outcome.errors)")
        #expect(outcome.errors.contains("\n* matching TLSA record: \(right)\n"), "\(outcome.errors)")
    }

    @Test(arguments: ["--tls", "--starttls smtp"]) func aServerWithoutAMatchingRecordReceivesNothing(transport: String)
        async throws
    {
        let server = try await server(transport)
        let outcome = try await SockcatProcess.run(
            "connect \(transport) --tlsa '\(wrong)' localhost \(server.port)", input: "secret", in: folder)
        await server.stop()
        #expect(outcome.status == ExitStatus.untrusted.rawValue && outcome.output == "")
        for part in [
            "no TLSA record matches", "\"3 1 1 abababab", "does not match the server's own",
            "hint: the server may be an impostor",
        ] {
            #expect(outcome.errors.contains(part), "\(outcome.errors)")
        }
    }

    @Test(arguments: [
        ("--tlsa '3 1 1'", "does not have four parts"), ("--tlsa '3 1 1 xy'", "not hexadecimal"),
        ("--tlsa '3 1 1 ab' --insecure", "--tlsa and --insecure cannot be combined"),
        ("--tlsa '3 1 1 ab' --psk a:00", "--tlsa and --psk cannot be combined"),
        ("--tlsa '3 1 1 ab' --pin-only --pin \(String(repeating: "ab", count: 32))", "--tlsa and --pin-only cannot be combined"),
        ("--tlsa '3 1 1 ab' --ca ca.pem", "--ca has no effect with these TLSA records"),
    ]) func contradictionsAndOtherTextsAreMistakes(options: String, message: String) async throws {
        let outcome = try await SockcatProcess.run("connect --tls \(options) localhost 1", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue && outcome.errors.contains(message), "\(outcome.errors)")
    }

    /// A record with a short digest matches no server, so the server is not contacted.
    @Test func onlyUsableRecordsAuthenticateAServer() async throws {
        let outcome = try await SockcatProcess.run("connect --tls --tlsa '3 1 1 ab' localhost 1", in: folder)
        #expect(outcome.status != 0 && outcome.errors.contains("a SHA-256 digest has 32 bytes, and not 1"), "\(outcome.errors)")
    }

    @Test func anAddressHasNoRecords() async throws {
        let server = try await server()
        let address = try await SockcatProcess.run(
            "connect --tls --tlsa '\(right)' 127.0.0.1 \(server.port)", input: "hello", in: folder)
        let named = try await SockcatProcess.run(
            "connect --tls --tlsa '\(right)' --sni localhost 127.0.0.1 \(server.port)", input: "hello", in: folder)
        await server.stop()
        #expect(address.status == ExitStatus.usage.rawValue)
        #expect(address.errors.contains("hint: pass the host name of the server with --sni"), "\(address.errors)")
        #expect(named.status == 0 && named.output == "hello", "\(named.errors)")
    }

    @Test(arguments: [true, false]) func aRelayRequiresTheRecordsOfItsTarget(isRight: Bool) async throws {
        let target = try await server()
        let relay = try await SockcatServer(
            "relay -v --listen localhost:0 --to localhost:\(target.port) --to-tls --to-tlsa '\(isRight ? right : wrong)'",
            in: folder)
        let outcome = try await SockcatProcess.run("connect localhost \(relay.port)", input: "hello", in: folder)
        #expect(outcome.output == (isRight ? "hello" : ""))
        _ = try await relay.line(containing: isRight ? "* matching TLSA record: \(right)" : "no TLSA record matches")
        for server in [relay, target] { await server.stop() }
    }

    @Test func anInspectionReportsTheRecord() async throws {
        let server = try await server()
        let matched = try await SockcatProcess.run("inspect --tlsa '\(right)' localhost \(server.port)", in: folder)
        let json = try await SockcatProcess.run(
            "inspect --no-probes --json --tlsa '\(wrong)' --tlsa '\(right)' localhost \(server.port)", in: folder)
        let rejected = try await SockcatProcess.run("inspect --tlsa '\(wrong)' localhost \(server.port)", in: folder)
        await server.stop()
        #expect(matched.status == 0, "\(matched.errors)")
        #expect(
            matched.output.contains("\n  OCSP stapling   no response\n  DANE            matched \(right)\n"), "\(matched.output)")
        #expect(
            matched.output.contains("\n  resumption      accepted\n") && !matched.output.contains("problem"), "\(matched.output)")
        #expect(
            json.output.contains("\"dane\":{\"baseDomain\":\"localhost\",\"matched\":\"\(right)\",\"records\":[\"\(wrong)\","))
        // The server's certificate is reported too.
        #expect(rejected.status == ExitStatus.untrusted.rawValue)
        for part in ["certificate     CN=localhost", "DANE            not matched", "problem: no TLSA record matches"] {
            #expect(rejected.output.contains(part), "\(rejected.output)")
        }
    }
}

import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat bench --dtls` against real servers.
@Suite(.timeLimit(.minutes(2))) struct BenchDatagramTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["127.0.0.1"]), by: authority, to: "server")
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
    }

    private func bench(_ arguments: String) async throws -> (outcome: SockcatProcess.Outcome, report: BenchReport?) {
        let outcome = try await SockcatProcess.run("bench \(arguments) --json --timeout 60s", in: folder)
        return (outcome, try? JSONDecoder().decode(BenchReport.self, from: Data(outcome.output.utf8)))
    }

    private func server(_ options: String = "") async throws -> SockcatServer {
        try await SockcatServer(
            "listen --echo --dtls --cert server.pem --key server.key \(options) 127.0.0.1:0", in: folder)
    }

    @Test func handshakesAreCounted() async throws {
        let server = try await server()
        let result = try await bench(
            "handshakes --dtls --ca ca.pem --count 20 --connections 3 --duration 1m 127.0.0.1 \(server.port)")
        await server.stop()
        #expect(result.outcome.status == 0, "\(result.outcome)")
        #expect(result.report?.count == 20 && result.report?.failures == 0)
        #expect((result.report?.latency.minimum ?? 0) > 0)
    }

    @Test func handshakesAreResumed() async throws {
        let server = try await server()
        let result = try await bench(
            "handshakes --resumed --dtls --ca ca.pem --count 5 --connections 1 --duration 1m 127.0.0.1 \(server.port)")
        await server.stop()
        #expect(result.report?.count == 5 && result.report?.resumed == 5, "\(result.outcome)")
    }

    @Test func aServerOfOpenSSLIsMeasured() async throws {
        let server = try await OpenSSLServer("-dtls1_2 -mtu 1200", in: folder)
        let result = try await bench(
            "handshakes --dtls --ca ca.pem --count 3 --connections 1 --duration 1m 127.0.0.1 \(server.port)")
        try await server.stop()
        #expect(result.report?.count == 3 && result.report?.failures == 0, "\(result.outcome)")
    }

    @Test func requestsAreCounted() async throws {
        let server = try await server()
        let result = try await bench(
            "requests --dtls --ca ca.pem --send ping --count 50 --connections 2 --duration 1m 127.0.0.1 \(server.port)")
        await server.stop()
        #expect(result.outcome.status == 0, "\(result.outcome)")
        #expect(result.report?.count == 50 && result.report?.bytesSent == 200 && result.report?.bytesReceived == 200)
    }

    @Test func theFirstFailureIsReported() async throws {
        let server = try await server("--client-ca ca.pem")
        let untrusted = try await bench("handshakes --dtls --count 2 127.0.0.1 \(server.port)")
        let refused = try await bench("handshakes --dtls --ca ca.pem --count 2 127.0.0.1 \(server.port)")
        let accepted = try await bench(
            "handshakes --dtls --ca ca.pem --cert ada.pem --key ada.key --count 2 --duration 1m 127.0.0.1 \(server.port)")
        await server.stop()
        #expect(untrusted.outcome.status == ExitStatus.untrusted.rawValue, "\(untrusted.outcome)")
        #expect(refused.outcome.status == ExitStatus.handshakeFailed.rawValue, "\(refused.outcome)")
        #expect(accepted.report?.count == 2, "\(accepted.outcome)")
    }

    @Test(arguments: [
        ("handshakes --dtls --starttls smtp", "omit --dtls"), ("handshakes --dtls --reset", "--reset requires TCP"),
        ("requests --dtls --tls --send x", "--dtls cannot be combined"), ("requests --dtls --http /", "omit --http"),
        ("requests --dtls --send x --until y", "each response is one datagram"),
        ("requests --dtls --send x --resume s --early-data f", "--early-data requires TLS"),
    ]) func optionsWithoutEffectAreErrors(arguments: String, message: String) async throws {
        let outcome = try await SockcatProcess.run("bench \(arguments) localhost 1", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue, "\(outcome)")
        #expect(outcome.errors.contains(message), "\(outcome)")
    }
}

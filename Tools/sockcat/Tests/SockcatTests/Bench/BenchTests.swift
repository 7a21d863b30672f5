import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat bench` against real servers.
@Suite(.timeLimit(.minutes(1))) struct BenchTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
    }

    private func bench(_ arguments: String) async throws -> (outcome: SockcatProcess.Outcome, report: BenchReport?) {
        let outcome = try await SockcatProcess.run("bench \(arguments) --json", in: folder)
        return (outcome, try? JSONDecoder().decode(BenchReport.self, from: Data(outcome.output.utf8)))
    }

    private func echoServer(_ options: String = "") async throws -> SockcatServer {
        try await SockcatServer("listen --echo \(options) localhost:0", in: folder)
    }

    @Test func handshakesAreCounted() async throws {
        let server = try await echoServer("--tls --cert server.pem --key server.key")
        let result = try await bench("handshakes --ca ca.pem --count 20 --connections 3 localhost \(server.port)")
        await server.stop()
        let report = try #require(result.report, "\(result.outcome)")
        #expect(result.outcome.status == 0)
        #expect(report.count == 20 && report.failures == 0)
        #expect(report.latency.minimum > 0 && report.latency.minimum <= report.latency.p50)
        #expect(report.latency.p50 <= report.latency.p99 && report.latency.p99 <= report.latency.maximum)
        #expect(report.histogram.map(\.count).reduce(0, +) == 20)
    }

    /// In TLS 1.3, the rejection follows the client's handshake.
    @Test func aServerThatRejectsTheClientIsNotMeasured() async throws {
        let server = try await echoServer("--tls --cert server.pem --key server.key --client-ca ca.pem")
        let result = try await bench("handshakes --ca ca.pem --count 5 localhost \(server.port)")
        await server.stop()
        #expect(result.outcome.status == ExitStatus.handshakeFailed.rawValue)
        #expect(result.outcome.errors.contains("pass a certificate with --cert and --key"))
        #expect(result.report == nil)
    }

    private func issueClients() throws {
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
        let stranger = try CertificateAuthority(name: "Stranger").issue(.client(commonName: "eve"))
        try folder.write(stranger.certificateChainPEM, to: "eve.pem")
        try folder.write(stranger.privateKeyPEM, to: "eve.key")
    }

    private static let requiring = "--tls --cert server.pem --key server.key --client-ca ca.pem"

    @Test(arguments: ["handshakes", "requests --tls --send x --response-bytes 1", "bytes --tls --direction send"])
    func aServerThatRefusesTheCertificateIsNotMeasured(measurement: String) async throws {
        try issueClients()
        let server = try await echoServer(Self.requiring)
        let refused = try await bench(
            "\(measurement) --ca ca.pem --cert eve.pem --key eve.key --count 5 localhost \(server.port)")
        let accepted = try await bench(
            "\(measurement) --ca ca.pem --cert ada.pem --key ada.key --count 5 localhost \(server.port)")
        await server.stop()
        #expect(refused.outcome.status == ExitStatus.handshakeFailed.rawValue, "\(refused.outcome)")
        #expect(refused.report == nil)
        #expect(accepted.outcome.status == 0 && accepted.report?.count == 5, "\(accepted.outcome)")
    }

    /// A server can accept the certificate and refuse it later.
    @Test func aRefusedHandshakeIsAFailure() async throws {
        try issueClients()
        let server = try await echoServer(Self.requiring)
        try folder.write(try CertificateAuthority(name: "Stranger").rootPEM, to: "other.pem")
        let other = try await echoServer(Self.requiring.replacingOccurrences(of: "ca.pem", with: "other.pem"))
        let (port, otherPort) = (server.port, other.port)
        let relay = try CountingServer { .forward(toPort: $0 < 4 ? port : otherPort) }
        let result = try await bench(
            "handshakes --ca ca.pem --cert ada.pem --key ada.key --count 6 --connections 1 localhost \(relay.port)")
        await relay.stop()
        await server.stop()
        await other.stop()
        #expect(result.report?.count == 2 && result.report?.failures == 4, "\(result.outcome)")
        #expect(result.outcome.status == ExitStatus.failure.rawValue)
    }

    @Test func aServerThatConfirmsNothingIsAWarning() async throws {
        try issueClients()
        let server = try await OpenSSLServer(
            "-Verify 1 -verify_return_error -CAfile ca.pem -tls1_3 -num_tickets 0 -no_ticket -no_cache", in: folder)
        let result = try await bench("handshakes --ca ca.pem --cert ada.pem --key ada.key --count 2 localhost \(server.port)")
        try await server.stop()
        #expect(result.outcome.errors.contains("has not confirmed that it accepts the client"), "\(result.outcome)")
    }

    @Test func handshakesAreResumed() async throws {
        let server = try await OpenSSLServer("-www", in: folder)
        let result = try await bench("handshakes --resumed --ca ca.pem --count 10 localhost \(server.port)")
        try await server.stop()
        #expect(result.report?.count == 10 && result.report?.resumed == 10)
    }

    @Test func aServerWithoutTicketsIsExplained() async throws {
        let server = try await OpenSSLServer("-www -num_tickets 0 -no_ticket -no_cache", in: folder)
        let result = try await bench("handshakes --resumed --ca ca.pem localhost \(server.port)")
        try await server.stop()
        #expect(result.outcome.status == ExitStatus.handshakeFailed.rawValue)
        #expect(result.outcome.errors.contains("hint: enable session tickets on the server"))
    }

    @Test func requestsAreCounted() async throws {
        let server = try await echoServer()
        let result = try await bench(
            #"requests --send 'PING\r\n' --until '\r\n' --count 50 --connections 2 localhost \#(server.port)"#)
        let bytes = try await bench("requests --send ping --response-bytes 4 --count 5 localhost \(server.port)")
        await server.stop()
        #expect(result.report?.count == 50)
        #expect(result.report?.bytesSent == 300 && result.report?.bytesReceived == 300)
        #expect(bytes.report?.count == 5)
    }

    @Test func webPagesAreRequested() async throws {
        let server = try await OpenSSLServer("-www", in: folder)
        let result = try await bench("requests --tls --ca ca.pem --http / --count 6 --connections 2 localhost \(server.port)")
        try await server.stop()
        #expect(result.report?.count == 6, "\(result.outcome)")
    }

    /// The largest length that fits into an integer, and a body that ends too early.
    @Test(arguments: [
        "Transfer-Encoding: chunked\\r\\n\\r\\n7fffffffffffffff\\r\\n", "Content-Length: 9223372036854775807\\r\\n\\r\\nx",
        "Transfer-Encoding: chunked\\r\\n\\r\\n-1\\r\\n", "Content-Length: -1\\r\\n\\r\\n",
    ]) func impossibleLengthsAreFailures(head: String) async throws {
        let server = try await SockcatServer("listen --exec 'printf \"HTTP/1.1 200 OK\\r\\n\(head)\"' localhost:0", in: folder)
        let result = try await bench("requests --http / --count 1 --connections 1 --timeout 30s localhost \(server.port)")
        await server.stop()
        #expect(result.outcome.status == ExitStatus.connectionLost.rawValue, "\(result.outcome)")
    }

    @Test(arguments: ["send", "echo"]) func bytesAreCounted(direction: String) async throws {
        let server = try await echoServer()
        let result = try await bench(
            "bytes --direction \(direction) --block 10000 --count 30 --connections 2 localhost \(server.port)")
        await server.stop()
        #expect(result.report?.bytesSent == 300_000, "\(result.outcome)")
        if direction == "echo" { #expect(result.report?.bytesReceived == 300_000) }
    }

    @Test func theFirstFailureIsReportedIfNothingSucceeds() async throws {
        let server = try await echoServer("--tls --cert server.pem --key server.key")
        let untrusted = try await bench("handshakes --count 5 localhost \(server.port)")
        await server.stop()
        let refused = try await bench("requests --send x --count 5 localhost \(server.port)")
        #expect(untrusted.outcome.status == ExitStatus.untrusted.rawValue)
        #expect(refused.outcome.status == ExitStatus.connectFailed.rawValue)
    }

    @Test func theTextShowsPercentilesAndAHistogram() async throws {
        let server = try await echoServer()
        let outcome = try await SockcatProcess.run(
            "bench requests --send x --response-bytes 1 --count 20 --color never localhost \(server.port)", in: folder)
        await server.stop()
        for text in ["requests per second", "99.9 %", "up to ", "█"] {
            #expect(outcome.output.contains(text), "\(outcome.output)")
        }
    }
}

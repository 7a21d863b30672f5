import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// How many connections `sockcat inspect` makes. Some servers block clients that make too many.
@Suite(.timeLimit(.minutes(5))) struct ConnectionCountTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
    }

    /// Inspects a server through a relay that counts, and returns the count.
    private func count(_ port: Int, _ options: String = "", expecting status: SockcatCommands.ExitStatus = .success) async throws
        -> Int
    {
        let relay = try CountingServer { _ in .forward(toPort: port) }
        let outcome = try await SockcatProcess.run("inspect --ca ca.pem \(options) localhost \(relay.port)", in: folder)
        await relay.stop()
        #expect(outcome.status == status.rawValue, "\(outcome)")
        return relay.count
    }

    @Test(arguments: [
        ("", 5), ("-tls1_3", 3), ("-tls1_2", 5), ("-no_tls1_2", 3), ("-min_protocol TLSv1 -cipher ALL:@SECLEVEL=0", 6),
        ("-min_protocol TLSv1 -serverpref -cipher ALL:@SECLEVEL=0", 16), ("-tls1_2 -serverpref -cipher ALL:@SECLEVEL=0", 16),
        ("-tls1_2 -serverpref -cipher kRSA:ECDHE", 16),
    ])
    func aServerGetsFewConnections(options: String, limit: Int) async throws {
        let server = try await OpenSSLServer("-www \(options)", in: folder)
        let count = try await count(server.port)
        try await server.stop()
        #expect((2...limit).contains(count), "\(count)")
    }

    @Test func anOldServerGetsFewConnections() async throws {
        let server = try await OpenSSLServer("-www -tls1_1 -cipher ALL:@SECLEVEL=0", in: folder)
        let count = try await count(server.port, expecting: .handshakeFailed)
        try await server.stop()
        #expect((3...5).contains(count), "\(count)")
    }

    @Test(arguments: StartTLSName.allCases) func aServerWithSTARTTLSGetsFewConnections(name: StartTLSName) async throws {
        let server = try await SockcatServer(
            "listen --echo --starttls \(name.rawValue) --cert server.pem --key server.key localhost:0", in: folder)
        let count = try await count(server.port, "--starttls \(name.rawValue)")
        await server.stop()
        #expect((4...5).contains(count), "\(count)")
    }

    @Test func oneConnectionIsMadeWithoutProbes() async throws {
        let server = try await OpenSSLServer("-www", in: folder)
        let count = try await count(server.port, "--no-probes")
        let presenting = try await self.count(server.port, "--no-probes --cert ada.pem --key ada.key")
        try await server.stop()
        #expect(count == 1 && presenting == 1)
    }

    // MARK: - Refusals

    /// MySQL's error 1129.
    private static let blocked: [UInt8] = {
        let message = Array("Host '127.0.0.1' is blocked because of many connection errors".utf8)
        return [UInt8(message.count + 3), 0, 0, 0, 0xFF, 0x69, 0x04] + message
    }()

    static let refusals: [(name: String, bytes: [UInt8])] = [
        ("smtp", Array("554 5.7.1 blocked\r\n".utf8)), ("lmtp", Array("421 4.7.0 too many connections\r\n".utf8)),
        ("imap", Array("* BYE too many connections\r\n".utf8)), ("pop3", Array("-ERR too many connections\r\n".utf8)),
        ("sieve", Array("BYE \"too many connections\"\r\n".utf8)), ("ftp", Array("421 too many connections\r\n".utf8)),
        ("nntp", Array("400 too many connections\r\n".utf8)), ("mysql", blocked),
        ("irc", Array("ERROR :banned\r\n".utf8)), ("postgres", Array("N".utf8)), ("", Array("blocked\r\n".utf8)), ("", []),
        ("smtp", []),
        // The fatal alert access_denied.
        ("", [21, 3, 3, 0, 2, 2, 49]),
    ]

    @Test(arguments: refusals.indices) func theFirstRefusalIsTheLastConnection(index: Int) async throws {
        let (name, bytes) = Self.refusals[index]
        let server = try CountingServer { _ in .refuse(bytes) }
        let option = name.isEmpty ? "" : "--starttls \(name)"
        let outcome = try await SockcatProcess.run("inspect \(option) localhost \(server.port)", in: folder)
        await server.stop()
        #expect(server.count == 1, "\(name): \(outcome.output)")
        #expect(outcome.status == ExitStatus.handshakeFailed.rawValue, "\(outcome.output)")
    }

    @Test(arguments: 2...5) func aLaterRefusalIsTheLastConnectionToo(number: Int) async throws {
        let server = try await SockcatServer(
            "listen --echo --starttls smtp --cert server.pem --key server.key localhost:0", in: folder)
        let port = server.port
        let relay = try CountingServer { $0 < number ? .forward(toPort: port) : .refuse("554 5.7.1 blocked\r\n") }
        let outcome = try await SockcatProcess.run(
            "inspect --ca ca.pem --starttls smtp localhost \(relay.port)", in: folder)
        await relay.stop()
        await server.stop()
        #expect(relay.count == number)
        #expect(
            outcome.output.contains("not testable") && outcome.output.contains("negotiated      TLSv1.3"), "\(outcome.output)")
    }
}

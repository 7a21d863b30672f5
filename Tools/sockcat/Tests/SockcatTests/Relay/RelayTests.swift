import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

@Suite(.timeLimit(.minutes(1))) struct RelayTests {
    let folder: TestFolder
    let authority: CertificateAuthority

    init() throws {
        folder = try TestFolder()
        authority = try CertificateAuthority()
        for name in ["a.example", "b.example"] { try folder.issue(.server(names: [name]), by: authority, to: name) }
    }

    /// An unreachable target is not an empty reply.
    @Test func aClientOfAnUnreachableTargetIsReset() async throws {
        let relay = try await SockcatServer("relay --listen 127.0.0.1:0 --to 127.0.0.1:1", in: folder)
        for _ in 0..<10 {
            let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(relay.port)", input: "hello\n", in: folder)
            #expect(outcome.status == ExitStatus.connectionLost.rawValue)
        }
        await relay.stop()
    }

    @Test func aPairOfRelaysAddsAndRemovesTLS() async throws {
        let echo = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let inner = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --listen-tls --cert a.example.pem --key a.example.key --to 127.0.0.1:\(echo.port)",
            in: folder)
        let outer = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --to 127.0.0.1:\(inner.port) --to-tls --to-ca ca.pem --to-sni a.example", in: folder)
        let file = try folder.writeRandomBytes(10_000_000, to: "data")
        let outcome = try await SockcatProcess.shell(
            "sockcat connect 127.0.0.1 \(outer.port) < \(file) | cmp - \(file) && echo same", in: folder)
        #expect(outcome.output == "same\n")
        for server in [outer, inner, echo] { await server.stop() }
    }

    @Test func aTargetThatIsNotTrustedReceivesNoData() async throws {
        let target = try await SockcatServer(
            "listen --keep-open --tls --cert a.example.pem --key a.example.key 127.0.0.1:0", in: folder, output: "received")
        let relay = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --to 127.0.0.1:\(target.port) --to-tls --to-sni a.example", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(relay.port)", input: "secret", in: folder)
        #expect(outcome.output.isEmpty)
        #expect(try await relay.line(containing: "not trusted").hasPrefix("target 127.0.0.1:\(target.port) (client 127.0.0.1:"))
        for server in [relay, target] { await server.stop() }
        #expect(try folder.text("received").isEmpty)
    }

    @Test func theServerNameSelectsTheTargetWithoutDecryption() async throws {
        var targets: [String: SockcatServer] = [:]
        for name in ["a.example", "b.example"] {
            targets[name] = try await SockcatServer(
                "listen --exec 'echo \(name)' --tls --cert \(name).pem --key \(name).key 127.0.0.1:0", in: folder)
        }
        let routes = targets.map { "--route \($0)=127.0.0.1:\($1.port)" }.joined(separator: " ")
        let relay = try await SockcatServer("relay --listen 127.0.0.1:0 \(routes)", in: folder)
        for name in targets.keys {
            let outcome = try await SockcatProcess.run(
                "connect --tls --ca ca.pem --sni \(name) 127.0.0.1 \(relay.port)", in: folder)
            #expect(outcome.output == "\(name)\n")
        }
        let unknown = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --sni c.example 127.0.0.1 \(relay.port)", in: folder)
        #expect(unknown.status == ExitStatus.handshakeFailed.rawValue)
        #expect(unknown.errors.contains("unrecognized_name"))
        for server in [relay] + targets.values { await server.stop() }
    }

    @Test(arguments: [1, 2]) func theAddressOfTheClientPassesTwoRelays(version: Int) async throws {
        let target = try await SockcatServer("listen --exec 'head -n 1' 127.0.0.1:0", in: folder)
        let inner = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --proxy-in 127.0.0.0/8 --proxy-out 1 --to 127.0.0.1:\(target.port)", in: folder)
        let outer = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --proxy-out \(version) --to 127.0.0.1:\(inner.port)", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: outer.port)
        let port = client.localPort
        #expect(try await client.readLine() == "PROXY TCP4 127.0.0.1 127.0.0.1 \(port) \(outer.port)")
        try await client.close()
        for server in [outer, inner, target] { await server.stop() }
    }

    @Test func clientsWithoutARequiredHeaderAreRejected() async throws {
        let echo = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let relay = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --proxy-in any --to 127.0.0.1:\(echo.port)", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(relay.port)", input: "hello\r\n", in: folder)
        #expect(outcome.output.isEmpty)
        _ = try await relay.line(containing: "the PROXY header is invalid")
        for server in [relay, echo] { await server.stop() }
    }

    @Test func optionsOnTheCommandLinePrecedeTheConfigurationFile() async throws {
        let echo = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        try folder.write(
            """
            # A relay for tests.
            listen = 127.0.0.1:0
            to     = 127.0.0.1:1
            verbose
            """, to: "relay.conf")
        let relay = try await SockcatServer("relay --config relay.conf --to 127.0.0.1:\(echo.port)", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(relay.port)", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        #expect(try await relay.line(containing: "closed").contains("5 bytes forwarded, 5 bytes returned"))
        for server in [relay, echo] { await server.stop() }
    }

    @Test func aReplacedCertificateIsUsedForNewConnections() async throws {
        let echo = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let relay = try await SockcatServer(
            "relay -v --listen 127.0.0.1:0 --listen-tls --cert a.example.pem --key a.example.key --to 127.0.0.1:\(echo.port)",
            in: folder)
        // The files are read once more when watching starts.
        _ = try await relay.line(containing: "the certificate was reloaded")
        let renewed = try folder.issue(.server(names: ["a.example"]), by: authority, to: "a.example")
        _ = try await relay.line(containing: "TLS settings replaced")
        var settings = try authority.clientSettings(serverName: "a.example")
        settings.resumption = .none
        var serial: String?
        while serial != renewed.serialNumber {
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: relay.port, tls: settings)
            serial = client.tlsSession?.peerCertificates.first?.serialNumber
            try await client.close()
        }
        for server in [relay, echo] { await server.stop() }
    }

    @Test func anUnusableCertificateIsReportedAndTheOldOneStays() async throws {
        let echo = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let relay = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --listen-tls --cert a.example.pem --key a.example.key --to 127.0.0.1:\(echo.port)",
            in: folder)
        try folder.write("no certificate", to: "a.example.pem")
        _ = try await relay.line(containing: "the changed certificate cannot be used")
        let outcome = try await SockcatProcess.run(
            "connect --tls --ca ca.pem --sni a.example 127.0.0.1 \(relay.port)", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        for server in [relay, echo] { await server.stop() }
    }
}

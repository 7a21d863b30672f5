import Foundation
import Testing

@testable import SockcatCommands

/// Names that a peer chooses contain lines and escape sequences. No command prints them as they are.
@Suite(.timeLimit(.minutes(3))) struct HostilePeerTests {
    let folder: TestFolder

    /// Creates certificates whose subject, common name and DNS names contain control and format characters.
    init() async throws {
        folder = try TestFolder()
        // The DNS name is "a\n  trust           trusted\u{1B}[8m".
        let name = "a\n  trust           trusted\u{1B}[8m"
        let encoded = ([0x30, UInt8(name.utf8.count + 2), 0x82, UInt8(name.utf8.count)] + Array(name.utf8))
            .map { String(format: "%02x", $0) }.joined(separator: ":")
        try folder.write(
            """
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout server.key -out server.pem \
            -utf8 -subj $'/O=\\xe2\\x80\\xaeorg/CN=evil\\n  trust           trusted\\x1b]0;title\\a' \
            -addext subjectAltName=DER:\(encoded)
            cat server.pem server.key >both.pem
            """, to: "create")
        let outcome = try await SockcatProcess.shell("bash create", in: folder)
        try #require(outcome.status == 0, "\(outcome.errors)")
    }

    /// Runs a command. Nothing that it prints contains a control or format character except line ends.
    private func run(_ command: String, input: String = "") async throws -> SockcatProcess.Outcome {
        let outcome = try await SockcatProcess.run(command, input: input, in: folder)
        #expect(OutputCheck.faults(in: outcome.output) == [], "\(command)")
        #expect(OutputCheck.faults(in: outcome.errors) == [], "\(command)")
        return outcome
    }

    @Test(arguments: ["", "--verbose", "--quiet", "--json"]) func inspectPrintsNoLineOfTheServer(options: String) async throws {
        let server = try await OpenSSLServer("", in: folder)
        let outcome = try await run("inspect \(options) --no-probes --timeout 30s 127.0.0.1 \(server.port)")
        _ = try await server.stop()
        #expect(outcome.status == ExitStatus.untrusted.rawValue)
        let text = outcome.output
        #expect(text.contains("evil"), "\(text)")
        let forged = text.unicodeScalars.split(separator: "\n").map { String($0) }.filter {
            $0.hasPrefix("  trust  ") && $0 != "  trust           not trusted"
        }
        #expect(forged.isEmpty, "\(text)")
        if options == "--quiet" {
            #expect(
                text.unicodeScalars.split(separator: "\n").map { String($0) }.allSatisfy {
                    $0.hasPrefix("127.0.0.1:\(server.port): ")
                }, "\(text)")
        }
        if options == "--json" {
            #expect(text.unicodeScalars.split(separator: "\n").map { String($0) }.count == 1)
            let report = try JSONDecoder().decode([String: JSONText].self, from: Data(text.utf8))
            #expect(report.values.flatMap(\.strings).flatMap { OutputCheck.faults(in: $0) } == [])
        }
    }

    @Test(arguments: ["", "--json"]) func inspectPrintsNoLineOfAFile(options: String) async throws {
        #expect(try await run("inspect \(options) server.pem").output.contains("evil"))
    }

    @Test func connectPrintsNoLineOfTheServer() async throws {
        let server = try await OpenSSLServer("", in: folder)
        let untrusted = try await run("connect --verbose --tls 127.0.0.1 \(server.port)")
        #expect(untrusted.status == ExitStatus.untrusted.rawValue)
        let trusted = try await run("connect --verbose --tls --insecure 127.0.0.1 \(server.port)")
        #expect(trusted.errors.contains("* peer: "), "\(trusted)")
        _ = try await server.stop()
    }

    @Test func benchPrintsNoLineOfTheServer() async throws {
        let server = try await OpenSSLServer("", in: folder)
        let outcome = try await run("bench handshakes --verbose --count 1 --connections 1 127.0.0.1 \(server.port)")
        _ = try await server.stop()
        #expect(outcome.errors.contains("evil"), "\(outcome)")
    }

    @Test func listenPrintsNoLineOfTheClient() async throws {
        let server = try await SockcatServer(
            "listen --verbose --echo --tls --cert server.pem --key server.key --client-ca server.pem 127.0.0.1:0", in: folder)
        _ = try await SockcatProcess.shell(
            "openssl s_client -connect 127.0.0.1:\(server.port) -cert server.pem -key server.key </dev/null", in: folder)
        let line = try await server.line(containing: "evil")
        await server.stop()
        #expect(OutputCheck.faults(in: line) == [])
    }

    @Test func aRelayPrintsNoServerNameOfTheClientAsItIs() async throws {
        let relay = try await SockcatServer("relay --listen 127.0.0.1:0 --route a.example=127.0.0.1:1", in: folder)
        try folder.write(
            """
            openssl s_client -connect 127.0.0.1:\(relay.port) \
            -servername $'evil\\n127.0.0.1:9 is forwarded\\x1b[8m' </dev/null
            """, to: "client")
        _ = try await SockcatProcess.shell("bash client", in: folder)
        let line = try await relay.line(containing: "127.0.0.1:")
        #expect(OutputCheck.faults(in: line) == [])
        #expect(!line.hasPrefix("127.0.0.1:9 is forwarded"))
        await relay.stop()
    }

    /// The reply of a server to STARTTLS, with escape sequences.
    @Test(arguments: ["smtp", "imap", "pop3", "ftp", "nntp", "sieve", "irc", "xmpp", "ldap", "postgres", "mysql"])
    func noCommandPrintsARefusalAsItIs(name: String) async throws {
        try folder.write("554 no\u{1B}[2J\u{9B}8m\u{202E}\r\n", to: "refusal")
        let server = try await SockcatServer("listen --exec 'cat refusal; cat >/dev/null' 127.0.0.1:0", in: folder)
        let connect = try await run("connect --verbose --starttls \(name) --timeout 2s 127.0.0.1 \(server.port)")
        #expect(connect.status != 0)
        _ = try await run("inspect --verbose --no-probes --starttls \(name) --timeout 2s 127.0.0.1 \(server.port)")
        _ = try await run("inspect --no-probes --starttls \(name) --timeout 2s --json 127.0.0.1 \(server.port)")
        server.terminate()
    }
}

/// The strings in a JSON value.
private enum JSONText: Decodable {
    case text(String)
    case values([JSONText])
    case other

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let text = try? container.decode(String.self) {
            self = .text(text)
        } else if let values = try? container.decode([String: JSONText].self) {
            self = .values(Array(values.values) + values.keys.map { .text($0) })
        } else if let values = try? container.decode([JSONText].self) {
            self = .values(values)
        } else {
            self = .other
        }
    }

    var strings: [String] {
        switch self {
        case .text(let text): [text]
        case .values(let values): values.flatMap(\.strings)
        case .other: []
        }
    }
}

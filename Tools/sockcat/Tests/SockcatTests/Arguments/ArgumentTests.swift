import ArgumentParser
import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

@Suite struct ArgumentTests {
    @Test(arguments: [
        ("5", Duration.seconds(5)), ("1.5s", .milliseconds(1500)), ("500ms", .milliseconds(500)), ("2m", .seconds(120)),
        ("1h", .seconds(3600)),
    ]) func durationsHaveUnits(text: String, duration: Duration) {
        #expect(DurationArgument(argument: text)?.duration == duration)
    }

    @Test(arguments: ["", "0", "-1", "5 s", "5d", "ms", "1e99"]) func otherDurationsAreRejected(text: String) {
        #expect(DurationArgument(argument: text) == nil)
    }

    @Test(arguments: [
        ("host:25", Endpoint.host("host", port: 25)), ("[::1]:443", .host("::1", port: 443)), ("unix:/a:b", .unix("/a:b")),
        ("unix:@name", .unix("@name")),
    ]) func endpointsAreHostsOrPaths(text: String, endpoint: Endpoint) throws {
        #expect(try Endpoint(text) == endpoint)
        #expect(try Endpoint("\(endpoint)") == endpoint)
    }

    @Test(arguments: [
        "host", "host:", "host:0", "host:65536", ":25", "::1", "::1:80", "unix:", "unix:\(String(repeating: "a", count: 108))",
    ])
    func otherEndpointsAreRejected(text: String) {
        #expect(throws: Failure.self) { try Endpoint(text) }
    }

    @Test(arguments: [
        ("host:https", Endpoint.host("host", port: 443)), ("[::1]:SMTP", .host("::1", port: 25)),
    ]) func aPortMayHaveAName(text: String, endpoint: Endpoint) throws {
        #expect(try Endpoint(text) == endpoint)
    }

    @Test(arguments: ["host:", "host:nobody-has-it", "host:https\0", "host: https"]) func otherNamesArePortsOfNobody(text: String)
    {
        #expect(throws: Failure.self) { try Endpoint(text) }
    }

    @Test func aProtocolIsNamedInAnyCase() {
        #expect(StartTLSName(argument: "SMTP") == .smtp && StartTLSName(argument: "Xmpp-Server") == .xmppServer)
        #expect(StartTLSName(argument: "smtps") == nil)
    }

    @Test func versionsAreARange() throws {
        let all = try #require(TLSVersionRange(argument: "1.2..1.3"))
        #expect(all.minimum == .tls12 && all.maximum == .tls13)
        let one = try #require(TLSVersionRange(argument: "1.2"))
        #expect(one.minimum == .tls12 && one.maximum == .tls12)
        for text in ["", "..", "1.2..", "..1.3", "1.3..1.2", "1.1", "1.2...1.3", "1.2-1.3", "tls1.2"] {
            #expect(TLSVersionRange(argument: text) == nil, "\(text)")
        }
    }

    /// After HOST:PORT, a word is a protocol. After a host alone, it is a port.
    @Test func aLineOfServersMayNameThePort() throws {
        let list = "a.example:25 SMTP\nb.example https\nc.example smtp smtp\n::1 443\n[::1] https\n"
        let expected = [
            ServerTarget(endpoint: .host("a.example", port: 25), startTLS: .smtp), .init(endpoint: .host("b.example", port: 443)),
            .init(endpoint: .host("c.example", port: 25), startTLS: .smtp), .init(endpoint: .host("::1", port: 443)),
            .init(endpoint: .host("::1", port: 443)),
        ]
        #expect(try InspectionTarget.targets(inList: list, named: "list") == expected.map { .server($0) })
        #expect(
            try InspectionTarget.targets(["a.example", "https"], nil, serverName: nil)
                == [.server(ServerTarget(endpoint: .host("a.example", port: 443)))])
        #expect(throws: Failure.self) { try InspectionTarget.targets(["a.example:443", "smtp"], nil, serverName: nil) }
        for line in ["a.example:25 smtp imap", "a.example smtp", "a.example nonsense"] {
            #expect(throws: Failure.self) { try InspectionTarget.targets(inList: line, named: "list") }
        }
        for name in ["nonsense", "99999", "0"] {
            #expect {
                try InspectionTarget.targets(["a.example", name], nil, serverName: nil)
            } throws: {
                "\($0)".contains("\"\(name)\" is not a port")
            }
        }
    }

    /// A folder may have the name of a host.
    @Test func aHostWithAPortIsNoFile() throws {
        let folder = try TestFolder()
        let expected = InspectionTarget.server(ServerTarget(endpoint: .host(folder.path, port: 443)))
        #expect(try InspectionTarget.targets([folder.path, "443"], nil, serverName: nil) == [expected])
        let file = try folder.write("", to: "443")
        #expect(try InspectionTarget.targets([file, file], nil, serverName: nil) == [.file(file), .file(file)])
    }

    @Test func aPinIsHexadecimalOrBase64() {
        let digest = Array(UInt8(0)..<32)
        let base64 = "sha256//" + Data(digest).base64EncodedString()
        for text in [Hexadecimal.text(digest), Hexadecimal.text(digest, separator: ":").uppercased(), base64] {
            #expect(PinArgument(argument: text)?.digest == digest)
        }
        #expect(PinArgument(argument: "00") == nil)
        #expect(PinArgument(argument: "sha256//AAAA") == nil)
    }

    @Test func aProxyIsAURL() {
        let socks = ProxyArgument(argument: "socks5://ada:secret@[::1]")?.proxy
        #expect(socks == .socks5(host: "::1", port: 1080, credentials: .init(username: "ada", password: "secret")))
        #expect(ProxyArgument(argument: "http://proxy.example:3128")?.proxy == .http(host: "proxy.example", port: 3128))
        for text in ["proxy:1080", "ftp://proxy", "socks5://", "socks5://proxy/path"] {
            #expect(ProxyArgument(argument: text) == nil)
        }
    }

    @Test func aListenerHasAPortAndOptionallyAnInterface() throws {
        #expect(try ListenAddress("80").place == .port(80, interface: nil))
        #expect(try ListenAddress("[::1]:80").place == .port(80, interface: "::1"))
        #expect(try ListenAddress("eth0:0").place == .port(0, interface: "eth0"))
        #expect(try ListenAddress("localhost:imaps").place == .port(993, interface: "localhost"))
        #expect(try ListenAddress("systemd").place == .passed(name: nil))
        #expect(try ListenAddress("systemd:a:b").place == .passed(name: "a:b"))
        for text in ["host", "systemd:"] { #expect(throws: Failure.self) { try ListenAddress(text) } }
    }

    /// Contradictions are found before anything is opened.
    @Test(arguments: [
        ("connect --tls --tls-version 1.2 --cipher-suite TLS_AES_128_GCM_SHA256 a 1", "TLS 1.2, but none"),
        ("listen --tls --tls-version 1.2..1.3 --cipher-suite ECDHE-RSA-AES128-GCM-SHA256 0", "TLS 1.3, but none"),
        (
            "relay --listen 0 --to a:1 --to-tls --to-tls-version 1.2 --to-cipher-suite TLS_AES_128_GCM_SHA256",
            "TLS 1.2, but none"
        ),
        ("listen --tls --tls-version 1.2 --early-data 0", "--early-data requires TLS 1.3"),
        ("listen --dtls --early-data 0", "--early-data requires TLS"),
        ("listen --tls --early-data --client-ca a 0", "omit --psk and --client-ca"),
        ("relay --listen 0 --listen-tls --cert a --early-data --to a:1 --hot-restart b", "cannot be combined"),
        ("inspect - -", "only once"), ("inspect - --watch 1h", "only once"),
    ]) func contradictionsAreMistakes(arguments: String, message: String) async throws {
        let outcome = try await SockcatProcess.run(arguments, in: TestFolder())
        #expect(
            outcome.status == SockcatCommands.ExitStatus.usage.rawValue && outcome.errors.contains(message), "\(outcome.errors)")
    }

    /// Each message states the limit.
    @Test(arguments: [
        ["connect", "unix:PATH"], ["inspect", "unix:PATH"], ["listen", "unix:PATH"],
        ["relay", "--to", "a:1", "--listen", "unix:PATH"],
        ["relay", "--listen", "0", "--to", "unix:PATH"], ["relay", "--listen", "0", "--route", "a=unix:PATH"],
    ]) func aPathThatIsTooLongIsNamedWithItsLimit(arguments: [String]) async throws {
        let path = "/" + String(repeating: "x", count: 107)
        let line = arguments.joined(separator: " ").replacing("PATH", with: path)
        let outcome = try await SockcatProcess.run(line, in: TestFolder())
        #expect(outcome.status == SockcatCommands.ExitStatus.usage.rawValue)
        #expect(outcome.errors.contains("a path has 1 to 107 bytes"), "\(outcome.errors)")
    }

    @Test func exitCodesAreListedInTheHelp() {
        let help = Sockcat.helpMessage()
        for status in ExitStatus.allCases { #expect(help.contains("  \(status.rawValue) ")) }
    }

    @Test(arguments: ["bash", "zsh", "fish"]) func completionsAreGenerated(shell: String) throws {
        let script = Sockcat.completionScript(for: try #require(CompletionShell(rawValue: shell)))
        for word in ["connect", "listen", "relay", "starttls"] { #expect(script.contains(word)) }
    }

    @Test(arguments: [
        ["--listen", "1"], ["--listen", "1", "--to", "a:1", "--cert", "a"], ["--listen", "1", "--to", "a:1", "--to-ca", "a"],
        ["--listen", "1", "--route", "a=b:1", "--listen-tls"], ["--listen", "1", "--to", "a:1", "--to-starttls", "mysql"],
        ["--listen", "1", "--to", "a:1", "--listen-starttls", "smtp", "--to-starttls", "imap"],
    ]) func contradictoryOptionsOfARelayAreRejected(arguments: [String]) {
        #expect(throws: (any Error).self) { try Relay.parse(arguments) }
    }

    @Test func colorsRequireATerminal() {
        #expect(TerminalStyle(.auto, descriptor: -1) == .plain)
        #expect(TerminalStyle(.always, descriptor: -1).red("x") == "\u{1B}[31;1mx\u{1B}[0m")
    }
}

@Suite struct ConfigurationFileTests {
    @Test func linesAreOptions() throws {
        let text = "# comment\n\nlisten = 8443\n to  host:1 \r\nlisten-tls\nroute \"*.a=b:1\"\nquiet = no\nverbose = yes\n"
        #expect(
            try ConfigurationFile.parse(text, of: "file").flatMap(\.arguments)
                == ["--listen=8443", "--to=host:1", "--listen-tls", "--route=*.a=b:1", "--verbose"])
    }

    @Test(arguments: ["--listen 1", "= 1", "config = other", "a;b"]) func otherLinesAreErrors(line: String) {
        #expect(throws: Failure.self) { try ConfigurationFile.parse("verbose\n\(line)", of: "file") }
    }

    /// The line of an invalid option is named, unless the option is from the command line.
    @Test(arguments: [
        ("listen = 1\n\nto = a", "", "line 3 of \"file\": The value 'a' is invalid for '--to <address>'"),
        ("listen = 1\nto = a:1\nto-key = b", "", "line 3 of \"file\": --to-key requires --to-cert"),
        ("listen = 1\nto = a:1\nto-pin = 00\nto-pin = 01", "", "line 3 of \"file\": The value '00' is invalid"),
        ("listen = 1\r\nto = a:1\r\nnonsense = 01\r\n", "", "line 3 of \"file\": Unknown option '--nonsense'"),
        ("listen = 1", "--to a", "sockcat: The value 'a' is invalid for '--to <address>'"),
        ("to = a", "--to b --listen 1", "sockcat: The value 'b' is invalid for '--to <address>'"),
    ]) func theLineOfAMistakeIsNamed(text: String, options: String, message: String) async throws {
        let folder = try TestFolder()
        try folder.write(text, to: "file")
        let outcome = try await SockcatProcess.run("relay --config file \(options)", in: folder)
        #expect(outcome.status == SockcatCommands.ExitStatus.usage.rawValue)
        #expect(outcome.errors.contains(message), "\(outcome.errors)")
    }

    @Test func theOptionsOfTheFileComeFirst() throws {
        let expanded = try ConfigurationFile.expand(["relay", "-v", "--config", "file", "--to", "b:1"]) { _ in "listen = 1" }
        #expect(expanded == ["relay", "--listen=1", "-v", "--to", "b:1"])
        #expect(try ConfigurationFile.expand(["relay", "--config=file"]) { $0 } == ["relay", "--file"])
        #expect(try ConfigurationFile.expand(["connect", "--config", "file"]) { $0 } == ["connect", "--config", "file"])
    }
}

@Suite struct RouteTableTests {
    @Test func theMostSpecificRouteIsTaken() throws {
        let routes = try ["A.example=a:1", "*.example=b:1", "*.a.example=c:1"].map { try RouteArgument($0) }
        let table = try RouteTable(routes, fallback: .host("d", port: 1))
        let expected = ["a.example": "a", "b.example": "b", "x.A.example": "c", "x.b.example": "d", "example": "d"]
        for (name, host) in expected { #expect(table.target(for: name) == .host(host, port: 1), "\(name)") }
        #expect(table.target(for: nil) == .host("d", port: 1))
        #expect(try RouteTable(routes, fallback: nil).target(for: "other") == nil)
    }

    @Test func aNameHasOneRoute() throws {
        let routes = try ["a=b:1", "A=c:1"].map { try RouteArgument($0) }
        #expect(throws: Failure.self) { try RouteTable(routes, fallback: nil) }
    }

    @Test(arguments: ["a", "=b:1", "a=b", "*.*.a=b:1"]) func otherRoutesAreRejected(text: String) {
        #expect(throws: Failure.self) { try RouteArgument(text) }
    }
}

@Suite struct StreamTests {
    @Test func lineEndsAreConvertedAcrossChunks() {
        var endings = LineEndings()
        let chunks = ["a\nb\r", "\nc\n", "\n"].map { String(decoding: endings.converted(Data($0.utf8)), as: UTF8.self) }
        #expect(chunks.map { Array($0.utf8) } == ["a\r\nb\r", "\nc\r\n", "\r\n"].map { Array($0.utf8) })
    }

    @Test func linesAreSplitAcrossChunks() {
        var splitter = LineSplitter()
        #expect(splitter.lines(in: Data("a\nb".utf8)) == [Data("a\n".utf8)])
        #expect(splitter.lines(in: Data("c\n\nd".utf8)) == [Data("bc\n".utf8), Data("\n".utf8)])
        #expect(splitter.lastLine() == Data("d".utf8))
        #expect(splitter.lastLine() == nil)
    }

    @Test func theRateOfTheLastSecondsPredictsTheTimeLeft() {
        let start = ContinuousClock.now
        var meter = RateMeter(total: 4096, start: start)
        #expect(meter.text(1024, at: start + .seconds(1)) == "1.0 KiB of 4.0 KiB (25 %), 1.0 KiB/s, 3 s left")
        #expect(meter.text(4096, at: start + .seconds(2)) == "4.0 KiB of 4.0 KiB (100 %), 2.0 KiB/s")
        #expect(RateMeter.text(ofSeconds: 61.2) == "1 min 2 s")
        #expect(RateMeter.text(ofSeconds: 7260) == "2 h 1 min")
    }

    @Test func aCancelledReadEnds() async throws {
        let (readEnd, writeEnd) = try DescriptorPair.pipe()
        let owners = [DescriptorOwner(readEnd), DescriptorOwner(writeEnd)]
        let reader = try DescriptorReader(readEnd, name: "pipe")
        let task = Task { try await reader.read() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        withExtendedLifetime(owners) {}
    }
}

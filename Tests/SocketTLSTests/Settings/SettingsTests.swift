import AsyncSocketsTesting
import SocketTLS
import Testing

@Suite struct SettingsTests {
    private func complaint(_ settings: TLSSettings<some TLSRole.Side>) -> TLSError? {
        do {
            _ = try TLSContext.context(for: settings)
            return nil
        } catch {
            return error
        }
    }

    @Test(arguments: [
        ("", "is empty"), (".", "is empty"), ("mail\0.example.org", "NUL"), ("bücher.example", "A-labels"),
        (".example.org", "empty label"), ("a..b", "empty label"), ("mail example", "not allowed in a host name"),
        ("*.example.org", "not allowed in a host name"), ("mail.example.org\r\n", "not allowed in a host name"),
        ("[::1", "not allowed in a host name"),
        ("::1%", "not allowed in a host name"),
        ("[]", "not allowed in a host name"), ("[127.0.0.1]", "brackets"), ("[::1%]", "brackets"), ("[a]", "brackets"),
        ("[::1].", "not allowed in a host name"),
        (String(repeating: "a", count: 64), "longer than 63"),
        (String(repeating: "a.", count: 127) + "a", "longer than 253"), ("a%eth0", "not allowed in a host name"),
    ])
    func aServerNameThatCannotBeOneIsRefused(name: String, words: String) {
        let error = complaint(TLSSettings.client(serverName: name))
        #expect(error?.code == .invalidSettings)
        #expect(error?.fault == .caller)
        #expect(error?.message.contains(words) == true, "\(error?.message ?? "")")
    }

    @Test(arguments: [
        "mail.example.org", "mail.example.org.", "localhost", "_smtp.example.org", "127.0.0.1", "::1", "fe80::1%eth0", "[::1]",
        "[fe80::1%eth0]",
        "127.1", "0x7f.0.0.1", "2130706433",
    ])
    func aServerNameThatCanBeOneIsAccepted(name: String) {
        #expect(complaint(TLSSettings.client(serverName: name)) == nil)
    }

    @Test(arguments: [0, -1, -1e-18])
    func aTimeoutMustBeAboveZero(seconds: Double) {
        var settings = TLSSettings.client(serverName: "a")
        settings.handshakeTimeout = .seconds(seconds)
        #expect(complaint(settings)?.message.contains("handshakeTimeout") == true)
        settings.handshakeTimeout = .seconds(1)
        settings.trustTimeout = .seconds(seconds)
        #expect(complaint(settings)?.message.contains("trustTimeout") == true)
    }

    @Test func theOldestVersionCannotBeNewerThanTheNewest() {
        var settings = TLSSettings.client(serverName: "a")
        settings.minimumVersion = .tls13
        settings.maximumVersion = .tls12
        #expect(complaint(settings)?.message.contains("TLSv1.3") == true)
    }

    @Test func aServerNeedsAnIdentity() throws {
        var settings = try Fixture().server
        settings.identity = nil
        #expect(complaint(settings)?.message.contains("identity") == true)
    }

    @Test func ticketsAreCounted() throws {
        let fixture = try Fixture()
        for count in [-1, 0, 9, Int.max] {
            var settings = fixture.server
            settings.sessionTickets = .issued(count)
            #expect(complaint(settings)?.message.contains("must be from 1 to 8, but is \(count)") == true)
        }
        var asking = fixture.server
        asking.clients = .certificates(.optional)
        asking.sessionTickets = .issued(1)
        asking.trustRoots = try fixture.authority.roots
        #expect(complaint(asking) == nil)
        asking.trustEvaluation = .manual
        #expect(complaint(asking)?.message.contains("store the verdict") == true)
    }

    @Test func aMissingFileOfRootsIsNamed() {
        var settings = TLSSettings.client(serverName: "a")
        settings.trustRoots = .file(path: "/nonexistent/roots.pem")
        let error = complaint(settings)
        #expect(error?.code == .invalidCertificate)
        #expect(error?.message.contains("/nonexistent/roots.pem") == true)
    }

    @Test func whatIsNotChangedIsSafe() throws {
        let client = TLSSettings.client(serverName: "a")
        #expect(client.minimumVersion == .tls12)
        #expect(client.verifiesHostName)
        #expect(client.trustRoots == .system)
        #expect(client.trustEvaluation == .builtIn)
        #expect(client.earlyPlaintext == .reject)
        #expect(client.handshakeTimeout == .seconds(30))
        #expect(try Fixture().server.earlyPlaintext == .feedToTLS)
    }
}

@Suite struct ContextTests {
    @Test func connectionsToDifferentServersShareAContext() throws {
        let first = try TLSContext.context(for: TLSSettings.client(serverName: "a.example.org"))
        var settings = TLSSettings.client(serverName: "b.example.org")
        settings.handshakeTimeout = .seconds(7)
        settings.trustEvaluation = .manual
        #expect(try TLSContext.context(for: settings) === first)
    }

    @Test func whatTheHandshakeDependsOnMakesAnotherContext() throws {
        let fixture = try Fixture()
        let context = try TLSContext.context(for: fixture.server)
        #expect(try TLSContext.context(for: fixture.server) === context)
        var settings = fixture.server
        settings.minimumVersion = .tls12
        #expect(try TLSContext.context(for: settings) !== context)
        settings = fixture.server
        settings.applicationProtocols = ["h2"]
        #expect(try TLSContext.context(for: settings) !== context)
        settings = fixture.server
        settings.identity = try fixture.authority.identity(.server(names: ["other"]))
        #expect(try TLSContext.context(for: settings) !== context)
        settings = fixture.server
        settings.clients = .certificates(.optional)
        settings.trustRoots = try fixture.authority.roots
        #expect(try TLSContext.context(for: settings) !== context)
    }

    @Test func aChangedFileOfRootsMakesAnotherContext() throws {
        let file = try TemporaryFile(CertificateAuthority().rootPEM)
        var settings = TLSSettings.client(serverName: "a")
        settings.trustRoots = .file(path: file.path)
        let context = try TLSContext.context(for: settings)
        #expect(try TLSContext.context(for: settings) === context)
        try file.replace(with: CertificateAuthority(name: "A longer name").rootPEM)
        #expect(try TLSContext.context(for: settings) !== context)
    }

    @Test func aFileOfRootsIsTrusted() throws {
        var fixture = try Fixture()
        let file = try TemporaryFile(fixture.authority.rootPEM)
        fixture.client.trustRoots = .file(path: file.path)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test func aContextOutlivesTheCache() throws {
        let (fixture, cache) = (try Fixture(), ContextCache(limit: 64))
        let pair = try EnginePair(fixture.client, fixture.server, in: cache)
        for number in 0..<200 { try use(fixture.client, number, in: cache) }
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test func onlyContextsThatIssueTicketsPushOutOneThatDoes() throws {
        let (fixture, cache) = (try Fixture(), ContextCache(limit: 3))
        var settings = fixture.server
        settings.sessionTickets = .issued(1)
        let context = try TLSContext.context(for: settings, in: cache)
        for number in 0..<20 { try use(fixture.client, number, in: cache) }
        #expect(try TLSContext.context(for: settings, in: cache) === context)
        for number in 0..<2 { try use(settings, number, in: cache) }
        #expect(try TLSContext.context(for: settings, in: cache) === context)
        for number in 0..<3 { try use(settings, number + 2, in: cache) }
        #expect(try TLSContext.context(for: settings, in: cache) !== context)
    }

    /// A context that issues no tickets itself, but whose names do, counts among those that issue tickets.
    @Test func aContextWhoseNamesIssueTicketsCountsAmongThose() throws {
        let (fixture, cache) = (try Fixture(), ContextCache(limit: 3))
        var (named, settings) = (fixture.server, fixture.server)
        named.sessionTickets = .issued(1)
        settings.serverNames = try TLSServerNames([Fixture.host: named])
        let context = try TLSContext.context(for: settings, in: cache)
        for number in 0..<20 { try use(fixture.client, number, in: cache) }
        #expect(try TLSContext.context(for: settings, in: cache) === context)
        for number in 0..<3 { try use(named, number, in: cache) }
        #expect(try TLSContext.context(for: settings, in: cache) !== context)
    }

    @Test func theContextThatWasUsedLongestAgoLeavesTheCache() throws {
        let (fixture, cache) = (try Fixture(), ContextCache(limit: 3))
        func context(_ number: Int) throws -> TLSContext {
            var settings = fixture.client
            settings.applicationProtocols = ["protocol \(number)"]
            return try TLSContext.context(for: settings, in: cache)
        }
        let first = try context(0)
        let second = try context(1)
        _ = try context(2)
        #expect(try context(0) === first)
        // The fourth replaces the second.
        let fourth = try context(3)
        #expect(try context(0) === first && context(3) === fourth)
        #expect(try context(1) !== second)
    }

    private func use(_ settings: TLSSettings<some TLSRole.Side>, _ number: Int, in cache: ContextCache) throws {
        var settings = settings
        settings.applicationProtocols = ["protocol \(number)"]
        _ = try TLSContext.context(for: settings, in: cache)
    }

    @Test func contextsAreBuiltOnManyThreadsAtOnce() async throws {
        let fixture = try Fixture()
        let (client, server, cache) = (fixture.client, fixture.server, ContextCache(limit: 64))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<200 {
                group.addTask {
                    var settings = client
                    settings.applicationProtocols = ["p\(number % 70)"]
                    let pair = try EnginePair(settings, server, in: cache)
                    pair.shakeHands()
                    #expect(pair.isComplete)
                }
            }
            try await group.waitForAll()
        }
    }
}

import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTestTraits
import Testing

@testable import SocketTLS

/// Changes each setting by itself, and checks whether a session of the previous settings is still resumed. A
/// property that is missing in the tables fails.
@Suite(.timeLimit(.patient), .ownThreads) struct SettingScopeTests {
    private typealias Change = (inout TLSSettingValues) throws -> Void

    /// The fate of a session of the previous settings.
    private enum Fate: Equatable {
        case resumed, refused
    }

    private final class Keys: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init(_ byte: UInt8) throws {
            keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: byte, count: 80)))
        }
    }

    private let authority: CertificateAuthority
    private let other: CertificateAuthority
    private let log: TemporaryFile
    private let list: TemporaryFile
    private let keys: Keys

    init() throws {
        authority = try CertificateAuthority(name: "Scopes")
        other = try CertificateAuthority(name: "Others")
        log = try TemporaryFile("")
        list = try TemporaryFile(bytes: HandmadeCertificate.chain().root.revocationList())
        keys = try Keys(1)
    }

    /// The names of all stored properties, including those of the policy and the rules.
    private var properties: Set<String> {
        func names(_ value: Any) -> [String] { Mirror(reflecting: value).children.compactMap(\.label) }
        let parts =
            names(TLSPolicy.intermediate).map { "policy." + $0 } + names(TLSCertificateRules()).map { "rules." + $0 }
        return Set(names(TLSSettings.client(serverName: "x").values) + parts).subtracting(["policy", "rules"])
    }

    /// Returns where the setting of a case applies, according to the library.
    private func place(of name: String) throws -> SettingPlace {
        let values = TLSSettings.client(serverName: "x").values
        let names = Mirror(reflecting: values).children.compactMap(\.label)
        // A setting that has a default value compiles without a place.
        try #require(names.count == values.places.count)
        let places = Dictionary(uniqueKeysWithValues: zip(names, values.places))
        return try #require(places[name.prefix { $0 != "." }.description])
    }

    private func certificates(of authority: CertificateAuthority) throws -> [TLSCertificate] {
        guard case .certificates(let certificates) = try authority.roots else { throw TestFailure(what: "roots") }
        return certificates
    }

    // MARK: - Settings of both sides

    private var shared: [(String, Fate, Change)] {
        [
            (
                "trustRoots", .refused,
                { $0.trustRoots = .certificates(try certificates(of: authority) + certificates(of: other)) }
            ),
            ("rules.acceptsPartialChains", .refused, { $0.rules.acceptsPartialChains = true }),
            ("rules.verificationTime", .refused, { $0.rules.verificationTime = Date() }),
            ("rules.isStrict", .refused, { $0.rules.isStrict = true }),
            ("rules.revocationLists", .refused, { $0.rules.revocationLists = [.file(path: list.path)] }),
            ("rules.pins", .refused, { $0.rules.pins = [[UInt8](repeating: 1, count: 32)] }),
            ("rules.onlyReportsPins", .refused, { $0.rules.onlyReportsPins = true }),
            ("policy.minimumVersion", .refused, { $0.policy.minimumVersion = .tls13 }),
            ("policy.cipherSuites", .refused, { $0.policy.cipherSuites.removeLast() }),
            ("policy.groups", .refused, { $0.policy.groups.removeLast() }),
            ("policy.signatureAlgorithms", .refused, { $0.policy.signatureAlgorithms.removeLast() }),
            ("policy.securityLevel", .refused, { $0.policy.securityLevel = 3 }),
            ("policy.prefersServerCipherSuites", .resumed, { $0.policy.prefersServerCipherSuites = false }),
            // Without a provider it is an error.
            ("policy.requiresFIPS", .refused, { $0.policy = .fips }),
            ("policy.allowsConstrainedDevices", .refused, { $0.policy.allowsConstrainedDevices = true }),
            ("minimumVersion", .refused, { $0.minimumVersion = .tls13 }),
            ("isMinimumForStreams", .resumed, { $0.isMinimumForStreams = true }),
            ("applicationProtocols", .refused, { $0.applicationProtocols = ["h2"] }),
            ("maximumCertificateChainBytes", .refused, { $0.maximumCertificateChainBytes -= 1 }),
            ("maximumCertificateChainLength", .refused, { $0.maximumCertificateChainLength -= 1 }),
            ("keyLogFile", .refused, { $0.keyLogFile = log.path }),
            ("handshakeTimeout", .resumed, { $0.handshakeTimeout = .seconds(1) }),
            ("trustTimeout", .resumed, { $0.trustTimeout = .seconds(1) }),
        ]
    }

    /// They are in the domain, and change nothing about what may be resumed; the second one on servers.
    private static let withoutEffect: Set<String> = ["policy.prefersServerCipherSuites", "maximumVersion"]

    /// Each is missing for a reason: it has no meaning by itself, or cannot be combined with sessions.
    private let withoutCase: Set<String> = [
        // Applies only with lists, and is tested with them (`revocationScopeCounts`).
        "rules.revocationScope",
        // Settings of the other side are of another type.
        "role",
        // Set by the library, for settings that are listed by name.
        "acknowledgesServerName",
        // No ticket is issued, and no session resumed.
        "proof", "certificateType",
    ]

    // MARK: - Servers with shared ticket keys

    private func server() throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: try authority.identity(.server(names: ["a"])))
        settings.clients = .certificates(.required)
        settings.sessionTickets = .issued(1, keys: keys)
        settings.trustRoots = try authority.roots
        return settings
    }

    private func forServers(_ base: TLSSettingValues) throws -> [(String, Fate, Change)] {
        let another = try TLSIdentity.selfSigned(.ed25519)
        return shared + [
            ("identity", .refused, { $0.identity = try authority.identity(.server(names: ["b"])) }),
            ("additionalIdentities", .refused, { $0.additionalIdentities = [another] }),
            ("clientCertificates", .refused, { $0.clientCertificates = .optional }),
            ("tickets", .refused, { $0.tickets = .issued(1, keys: try Keys(2)) }),
            ("serverNames", .refused, { $0.serverNames = try TLSServerNames(["b": server()]) }),
            ("tickets", .resumed, { $0.tickets = .issued(3, keys: keys) }),
            ("trustEvaluation", .resumed, { $0.trustEvaluation = .delegate }),
            ("earlyPlaintext", .resumed, { $0.earlyPlaintext = .reject }),
            ("maximumVersion", .resumed, { $0.maximumVersion = .tls13 }),
        ]
    }

    /// They apply only to clients, or cannot be combined with shared keys.
    private let notForServers: Set<String> = [
        "serverName", "ocspStapling", "verifiesHostName", "allowsPostHandshakeAuthentication", "earlyData", "resumption",
        "acceptedEarlyData",
    ]

    @Test func noServerResumesWithOtherSettings() throws {
        let base = try server().values
        let pem = try authority.issue(.client(commonName: "alice"), signedBy: .root).pem
        func engine(_ settings: TLSSettingValues) throws -> TLSEngine {
            try TLSEngine(context: TLSContext.context(for: settings, in: ContextCache(limit: 1)), settings: settings)
        }
        let session = try RawPeer.client(of: engine(base), showing: pem).session()
        func isResumed(_ settings: TLSSettingValues) throws -> Bool {
            // Rejected settings do not resume sessions.
            guard thrown({ try engine(settings) }) == nil else { return false }
            let (server, peer) = (try engine(settings), try RawPeer(.tls13, clientPEM: pem))
            try peer.resume(session)
            peer.shakeHands(with: server)
            if server.isAwaitingTrust {
                server.decideTrust(true)
                _ = server.handshake()
            }
            return server.session?.isResumed == true
        }
        #expect(try isResumed(base))
        let cases = try forServers(base)
        for (name, fate, change) in cases {
            var changed = base
            try change(&changed)
            #expect(changed != base, "\(name)")
            #expect(try isResumed(changed) == (fate == .resumed), "\(name)")
            switch try place(of: name) {
            case .domain: #expect(fate == .refused || Self.withoutEffect.contains(name), "\(name)")
            case .connection: #expect(fate == .resumed, "\(name)")
            case .context, .peer: break
            }
        }
        #expect(Set(cases.map(\.0)).union(notForServers).union(withoutCase) == properties)
    }

    // MARK: - Clients

    private func forClients() throws -> [(String, Fate, Change)] {
        shared + [
            ("serverName", .refused, { $0 = try client("c", $0) }),
            ("identity", .refused, { $0.identity = try authority.identity(.client(commonName: "alice")) }),
            ("maximumVersion", .refused, { $0.maximumVersion = .tls13 }),
            ("ocspStapling", .refused, { $0.ocspStapling = .requested }),
            ("verifiesHostName", .refused, { $0.verifiesHostName = false }),
            ("trustEvaluation", .refused, { $0.trustEvaluation = .manual }),
            ("earlyPlaintext", .resumed, { $0.earlyPlaintext = .feedToTLS }),
            ("allowsPostHandshakeAuthentication", .resumed, { $0.allowsPostHandshakeAuthentication = true }),
            ("earlyData", .resumed, { $0.earlyData = TLSEarlyData([1]) }),
        ]
    }

    /// They apply only to servers; the last one is how the session is passed.
    private let notForClients: Set<String> = [
        "additionalIdentities", "clientCertificates", "tickets", "acceptedEarlyData", "serverNames", "resumption",
    ]

    /// The same settings for another name.
    private func client(_ name: String, _ old: TLSSettingValues) throws -> TLSSettingValues {
        var settings = TLSSettings.client(serverName: name)
        (settings.trustRoots, settings.resumption) = (old.trustRoots, old.resumption)
        return settings.values
    }

    @Test func noClientResumesWithOtherSettings() throws {
        var client = TLSSettings.client(serverName: "a")
        client.trustRoots = try authority.roots
        let base = client.values
        var server = TLSSettings.server(identity: try authority.identity(.server(names: ["a"])))
        server.values.tickets = .issued(1)
        let pair = try EnginePair(client, server)
        pair.shakeHands()
        #expect(try pair.exchange([1], from: .server) == [1])
        let session = try #require(pair.client.session?.resumable)
        func isTaken(_ settings: TLSSettingValues) -> Bool {
            var settings = settings
            settings.resumption = .session(session)
            let error = thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) }
            let isOfScope = error?.message.contains("different settings") == true
            #expect(error == nil || isOfScope || settings.policy.requiresFIPS, "\(String(describing: error))")
            return error == nil
        }
        #expect(isTaken(base))
        let cases = try forClients()
        for (name, fate, change) in cases {
            var changed = base
            try change(&changed)
            #expect(changed != base, "\(name)")
            #expect(isTaken(changed) == (fate == .resumed), "\(name)")
            let counts =
                [.domain, .peer].contains(try place(of: name))
                && !Self.withoutEffect.subtracting(["maximumVersion"]).contains(name)
            #expect(counts == (fate == .refused), "\(name)")
        }
        #expect(Set(cases.map(\.0)).union(notForClients).union(withoutCase) == properties)
    }

    // MARK: - Digests

    /// They apply outside of the domain: to one connection, or to the tickets.
    private static let outsideOfTheDomain: Set<String> = [
        "serverName", "verifiesHostName", "trustEvaluation", "tickets", "serverNames",
    ]

    /// Neither for one side nor across both.
    @Test func noTwoDomainsHaveTheSameDigest() throws {
        var client = TLSSettings.client(serverName: "a")
        client.trustRoots = try authority.roots
        var known: [[UInt8]: String] = [:]
        func expectNew(_ digest: [UInt8], _ name: String) {
            #expect(known.updateValue(name, forKey: digest) == nil, "\(name) and \(known[digest] ?? "")")
        }
        for (settings, cases) in [(client.values, try forClients()), (try server().values, try forServers(server().values))] {
            let same = SecurityDomain(settings)
            for digest in [same.clientScope.digest, try same.serverScope().digest] { expectNew(digest, "unchanged") }
            for (name, fate, change) in cases where fate == .refused && !Self.outsideOfTheDomain.contains(name) {
                var changed = settings
                try change(&changed)
                let domain = SecurityDomain(changed)
                #expect(domain != same, "\(name)")
                expectNew(domain.clientScope.digest, name)
                expectNew(try domain.serverScope().digest, name)
            }
        }
    }

    /// Otherwise the following data could be mistaken for another list.
    @Test func theDigestOfMoreListsDoesNotBeginLikeThatOfFewer() throws {
        let sources = [TLSRevocationSource.file(path: list.path), .file(path: list.path)]
        func bytes(_ sources: [TLSRevocationSource]) -> [UInt8] {
            var fields = DigestFields(.contents)
            Revocation(sources, .chain).append(to: &fields)
            return fields.bytes
        }
        #expect(!bytes(sources).starts(with: bytes([sources[0]])))
    }

    /// A store is arbitrary code. Whatever it returns, a session stays within its scope.
    @Test(arguments: versions) func aCarelessStoreCrossesNoScope(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.values.tickets = .issued(1)
        let store = CarelessStore()
        fixture.client.resumption = .store(store)
        var named = try fixture.authority.clientSettings(serverName: "other.example.org")
        named.resumption = fixture.client.resumption
        var others = [fixture.client, fixture.client, fixture.client, named]
        others[0].trustRoots = try other.roots
        others[1].verifiesHostName = false
        others[2].trustEvaluation = .manual
        let errors = [TLSError.Code.unknownIssuer, nil, nil, .hostNameMismatch]
        for (settings, error) in zip(others, errors) {
            store.removeAll()
            #expect(try fixture.connection().client.session?.isResumed == false)
            let taken = store.handedOut
            let connection = try fixture.connection(as: settings)
            #expect(store.handedOut == taken + 1)
            #expect(connection.client.session?.isResumed != true && connection.clientError?.code == error)
        }
        store.removeAll()
        for isResumed in [false, true] { #expect(try fixture.connection().client.session?.isResumed == isResumed) }
    }

    @Test func revocationScopeCounts() throws {
        let chain = try HandmadeCertificate.chain()
        let lists = try [chain.root, chain.intermediate].map { try TemporaryFile(bytes: $0.revocationList()) }
        var fixture = try Fixture(.tls13, leaf: chain.leaf, roots: [chain.root])
        fixture.client.values.rules.revocationLists = lists.map { .file(path: $0.path) }
        fixture.server.values.tickets = .issued(1)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(try pair.exchange([1], from: .server) == [1])
        var settings = fixture.client
        settings.resumption = .session(try #require(pair.client.session?.resumable))
        #expect(thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) } == nil)
        settings.values.rules.revocationScope = .leaf
        let error = thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) }
        #expect(error?.code == .invalidSettings && error?.message.contains("session") == true)
    }
}

import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Every setting alone is another one: whether a session of the settings before is then resumed. A property
/// that the tables do not know fails.
@Suite(.timeLimit(.minutes(20))) struct SettingScopeTests {
    private typealias Change = (inout TLSSettings) throws -> Void

    /// What becomes of a session of the settings as they were before.
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

    init() throws {
        authority = try CertificateAuthority(name: "Scopes")
        other = try CertificateAuthority(name: "Others")
        log = try TemporaryFile("")
        list = try TemporaryFile(bytes: HandmadeCertificate.chain().root.revocationList())
    }

    /// The names of all properties that are stored, and those of a policy.
    private var properties: Set<String> {
        func names(_ value: Any) -> [String] { Mirror(reflecting: value).children.compactMap(\.label) }
        let parts = names(TLSPolicy.intermediate).map { "policy." + $0 }
        return Set(names(TLSSettings.client(serverName: "x")) + parts).subtracting(["policy"])
    }

    private func certificates(of authority: CertificateAuthority) throws -> [Certificate] {
        guard case .certificates(let certificates) = try authority.roots else { throw TestFailure(what: "roots") }
        return certificates
    }

    // MARK: - What is the same for both sides

    private var shared: [(String, Fate, Change)] {
        [
            (
                "trustRoots", .refused,
                { $0.trustRoots = .certificates(try certificates(of: authority) + certificates(of: other)) }
            ),
            ("acceptsPartialChains", .refused, { $0.acceptsPartialChains = true }),
            ("verificationTime", .refused, { $0.verificationTime = Date() }),
            ("isStrict", .refused, { $0.isStrict = true }),
            ("revocationLists", .refused, { $0.revocationLists = [.file(path: list.path)] }),
            ("pins", .refused, { $0.pins = [[UInt8](repeating: 1, count: 32)] }),
            ("onlyReportsPins", .refused, { $0.onlyReportsPins = true }),
            ("policy.minimumVersion", .refused, { $0.policy.minimumVersion = .tls13 }),
            ("policy.cipherSuites", .refused, { $0.policy.cipherSuites.removeLast() }),
            ("policy.groups", .refused, { $0.policy.groups.removeLast() }),
            ("policy.signatureAlgorithms", .refused, { $0.policy.signatureAlgorithms.removeLast() }),
            ("policy.securityLevel", .refused, { $0.policy.securityLevel = 3 }),
            ("policy.serverChooses", .resumed, { $0.policy.serverChooses = false }),
            // Without a provider it is an error.
            ("policy.requiresFIPS", .refused, { $0.policy = .fips }),
            ("minimumVersion", .refused, { $0.minimumVersion = .tls13 }),
            ("applicationProtocols", .refused, { $0.applicationProtocols = ["h2"] }),
            ("maximumCertificateChainBytes", .refused, { $0.maximumCertificateChainBytes -= 1 }),
            ("maximumCertificateChainLength", .refused, { $0.maximumCertificateChainLength -= 1 }),
            ("keyLogFile", .refused, { $0.keyLogFile = log.path }),
            ("handshakeTimeout", .resumed, { $0.handshakeTimeout = .seconds(1) }),
            ("trustTimeout", .resumed, { $0.trustTimeout = .seconds(1) }),
        ]
    }

    /// Each has a reason to be missing: it means nothing alone, or cannot go with sessions at all.
    private let withoutCase: Set<String> = [
        // Counts with lists, and goes with them (`revocationScopeCounts`).
        "revocationScope",
        // Set by the library, for settings that are listed by name.
        "acknowledgesServerName",
        // No ticket is issued, and no session resumed.
        "rawPublicKeys", "preSharedKeys",
    ]

    // MARK: - Servers that share the keys of their tickets

    private func server() throws -> TLSSettings {
        var settings = TLSSettings.server(identity: try authority.identity(.server(names: ["a"])))
        settings.sessionTicketCount = 1
        settings.ticketKeys = try Keys(1)
        settings.clientCertificates = .required
        settings.resumesClientCertificates = true
        settings.trustRoots = try authority.roots
        return settings
    }

    private func forServers(_ base: TLSSettings) throws -> [(String, Fate, Change)] {
        let another = try TLSIdentity.selfSigned(.ed25519)
        return shared + [
            ("identity", .refused, { $0.identity = try authority.identity(.server(names: ["b"])) }),
            ("additionalIdentities", .refused, { $0.additionalIdentities = [another] }),
            ("clientCertificates", .refused, { $0.clientCertificates = .optional }),
            ("ticketKeyReference", .refused, { $0.ticketKeys = try Keys(2) }),
            ("resumesClientCertificates", .refused, { $0.resumesClientCertificates = false }),
            ("serverNames", .refused, { $0.serverNames = try TLSServerNames(["b": base]) }),
            ("sessionTicketCount", .resumed, { $0.sessionTicketCount = 3 }),
            ("trustEvaluation", .resumed, { $0.trustEvaluation = .delegate }),
            ("bytesBufferedAtUpgrade", .resumed, { $0.bytesBufferedAtUpgrade = .reject }),
            ("maximumVersion", .resumed, { $0.maximumVersion = .tls13 }),
        ]
    }

    /// They are for clients, or cannot go with shared keys.
    private let notForServers: Set<String> = [
        "role", "ocspStapling", "verifiesHostName", "allowsPostHandshakeAuthentication", "earlyData", "resumption",
        "maximumEarlyDataBytes", "earlyDataResponder",
    ]

    @Test func noServerResumesWithOtherSettings() throws {
        let base = try server()
        let pem = try authority.issue(.client(commonName: "alice"), signedBy: .root).pem
        func engine(_ settings: TLSSettings) throws -> TLSEngine {
            try TLSEngine(context: TLSContext.context(for: settings, in: ContextCache(limit: 1)), settings: settings)
        }
        let session = try RawPeer.client(of: engine(base), showing: pem).session()
        func isResumed(_ settings: TLSSettings) throws -> Bool {
            // Settings that are refused resume nothing.
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
        }
        #expect(Set(cases.map(\.0)).union(notForServers).union(withoutCase) == properties)
    }

    // MARK: - Clients

    private func forClients() throws -> [(String, Fate, Change)] {
        shared + [
            ("role", .refused, { $0 = try client("c", $0) }),
            ("identity", .refused, { $0.identity = try authority.identity(.client(commonName: "alice")) }),
            ("maximumVersion", .refused, { $0.maximumVersion = .tls13 }),
            ("ocspStapling", .refused, { $0.ocspStapling = .requested }),
            ("verifiesHostName", .refused, { $0.verifiesHostName = false }),
            ("trustEvaluation", .refused, { $0.trustEvaluation = .manual }),
            ("bytesBufferedAtUpgrade", .resumed, { $0.bytesBufferedAtUpgrade = .feedToTLS }),
            ("allowsPostHandshakeAuthentication", .resumed, { $0.allowsPostHandshakeAuthentication = true }),
            ("earlyData", .resumed, { $0.earlyData = TLSEarlyData([1]) }),
        ]
    }

    /// They are for servers; the last one is how the session is given.
    private let notForClients: Set<String> = [
        "additionalIdentities", "clientCertificates", "ticketKeyReference", "resumesClientCertificates", "serverNames",
        "sessionTicketCount", "maximumEarlyDataBytes", "earlyDataResponder", "resumption",
    ]

    /// The same settings for another name.
    private func client(_ name: String, _ old: TLSSettings) throws -> TLSSettings {
        var settings = TLSSettings.client(serverName: name)
        (settings.trustRoots, settings.resumption) = (old.trustRoots, old.resumption)
        return settings
    }

    @Test func noClientResumesWithOtherSettings() throws {
        var base = TLSSettings.client(serverName: "a")
        base.trustRoots = try authority.roots
        var server = TLSSettings.server(identity: try authority.identity(.server(names: ["a"])))
        server.sessionTicketCount = 1
        let pair = try EnginePair(base, server)
        pair.shakeHands()
        #expect(try pair.exchange([1], from: .server) == [1])
        let session = try #require(pair.client.session?.resumable)
        func isTaken(_ settings: TLSSettings) -> Bool {
            var settings = settings
            settings.resumption = .session(session)
            let error = thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) }
            let isOfScope = error?.message.contains("other settings") == true
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
        }
        #expect(Set(cases.map(\.0)).union(notForClients).union(withoutCase) == properties)
    }

    /// A store may be anyone's code: whatever it hands out, a session stays in its scope.
    @Test(arguments: versions) func aCarelessStoreCrossesNoScope(_ version: TLSVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.sessionTicketCount = 1
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
        fixture.client.revocationLists = lists.map { .file(path: $0.path) }
        fixture.server.sessionTicketCount = 1
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(try pair.exchange([1], from: .server) == [1])
        var settings = fixture.client
        settings.resumption = .session(try #require(pair.client.session?.resumable))
        #expect(thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) } == nil)
        settings.revocationScope = .leaf
        #expect(
            thrown { try TLSEngine(context: TLSContext.context(for: settings), settings: settings) }?.code == .invalidSettings)
    }
}

import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Servers that are authenticated by TLSA records over real sockets, with delegates and tasks.
@Suite(.timeLimit(.patient)) struct DANEUpgradeTests {
    /// A way to upgrade.
    struct Way: Sendable, CustomTestStringConvertible {
        let transport: Transport
        let isTask: Bool
        let version: TLSProtocolVersion

        static let all = [true, false].flatMap { isTask in
            [
                Way(transport: .stream, isTask: isTask, version: .tls12),
                Way(transport: .stream, isTask: isTask, version: .tls13),
                Way(transport: .datagrams, isTask: isTask, version: .dtls12),
            ]
        }

        var testDescription: String { "\(version) in a \(isTask ? "task" : "delegate")" }

        /// Upgrades both ends. Returns the client's session, or the reason why the connection closed.
        func upgrade(
            _ link: UpgradeLink, _ client: TLSClientSettings, _ server: TLSServerSettings
        ) async throws -> Result<TLSSession, AsyncSocketError> {
            try link.server.begin(server)
            do {
                if isTask {
                    try await link.client.upgrade(client)
                } else {
                    try link.client.begin(client)
                    try await link.client.securedOrEnded()
                }
            } catch let error as AsyncSocketError {
                #expect(!link.client.isSecure && !link.client.wasOpened)
                return .failure(error)
            }
            try await link.server.secured()
            return .success(try #require(link.client.session))
        }
    }

    /// A client that trusts other roots, a server, and the record of the server.
    private static func world(_ version: TLSProtocolVersion) throws -> (TLSClientSettings, TLSServerSettings, TLSARecord) {
        let server = try TestCertificates.server().only(version)
        var client = try TestCertificates.client().only(version)
        client.trustRoots = try TestCertificates.stranger.roots
        let leaf = try #require(server.identity?.certificateChain.first)
        return (client, server, try TLSARecord(for: leaf))
    }

    private static var otherRecord: TLSARecord {
        get throws { try TLSARecord(for: TLSCertificate(pem: TestCertificates.stranger.rootPEM)) }
    }

    // MARK: - Records of the caller

    @Test(arguments: Way.all) func aMatchingRecordAuthenticatesTheServer(_ way: Way) async throws {
        let (plain, server, record) = try Self.world(way.version)
        var client = plain
        client.proof = .dane(TLSDANE([record], policy: .required))
        let link = try await UpgradeLink(way.transport)
        #expect(try await way.upgrade(link, client, server).get().dane == .matched(record))
        try await link.client.send("hello")
        #expect(try await link.server.receive(5) == "hello")
    }

    @Test(arguments: Way.all, [TLSDANE.Policy.required, .certificates, .opportunistic])
    func recordsThatDoNotMatchEndTheConnection(_ way: Way, _ policy: TLSDANE.Policy) async throws {
        let (plain, server, _) = try Self.world(way.version)
        var client = plain
        client.trustRoots = try TestCertificates.authority.roots
        client.proof = .dane(TLSDANE([try Self.otherRecord], policy: policy))
        let link = try await UpgradeLink(way.transport)
        let error = try #require(try await way.upgrade(link, client, server).error)
        #expect(error.tls?.code == .tlsaMismatch && error.fault == .certificate && error.operation == way.transport.operation)
        #expect(link.client.isOver)
        #expect(try await link.server.ended()?.tls?.alert == .badCertificate)
    }

    @Test(arguments: Way.all) func withoutRecordsThePolicyDecides(_ way: Way) async throws {
        let (plain, server, _) = try Self.world(way.version)
        var client = plain
        client.proof = .dane(TLSDANE([], policy: .opportunistic))
        #expect(try await way.upgrade(UpgradeLink(way.transport), client, server).get().dane == .unauthenticated)
        client.proof = .dane(TLSDANE([], policy: .certificates))
        #expect(try await way.upgrade(UpgradeLink(way.transport), client, server).error?.tls?.code == .unknownIssuer)
        client.proof = .dane(TLSDANE([], policy: .required))
        let link = try await UpgradeLink(way.transport)
        let error = await #expect(throws: AsyncSocketError.self) { try await link.client.upgrade(client) }
        #expect(error?.tls?.code == .noUsableTLSARecord)
    }

    // MARK: - Look-ups

    @Test(arguments: Way.all) func aLookUpFindsTheRecords(_ way: Way) async throws {
        let (plain, server, record) = try Self.world(way.version)
        var client = plain
        let names = Locked<[String]>([])
        client.proof = .dane(
            TLSDANE(policy: .required) { name in
                names.withLock { $0.append(name) }
                await Task.yield()
                return TLSDANE.Response([record])
            })
        let link = try await UpgradeLink(way.transport)
        #expect(try await way.upgrade(link, client, server).get().dane == .matched(record))
        #expect(names.withLock { $0 } == ["localhost"])
        try await link.client.send("hello")
        #expect(try await link.server.receive(5) == "hello")
    }

    /// The server's certificate is for another name than the one that the caller has set.
    @Test(arguments: Way.all) func aLookUpFindsNames(_ way: Way) async throws {
        let (plain, server, _) = try Self.world(way.version)
        let root = try TLSCertificate(pem: TestCertificates.authority.rootPEM)
        let record = try TLSARecord(for: root, usage: .daneTA, selector: .certificate, matchingType: .full)
        let unusable = try TLSARecord("3 1 9 00")
        func outcome(
            _ policy: TLSDANE.Policy, _ response: TLSDANE.Response
        ) async throws -> (name: String?, error: TLSError.Code?) {
            var client = plain
            client.serverName = "alias.example"
            client.trustRoots = .certificates([root])
            client.proof = .dane(TLSDANE(policy: policy) { _ in response })
            let link = try await UpgradeLink(way.transport)
            let result = try await way.upgrade(link, client, server)
            return (link.server.session?.serverName, result.error?.tls?.code)
        }
        #expect(try await outcome(.required, .init([record])) == (nil, .hostNameMismatch))
        #expect(try await outcome(.required, .init([record], baseDomain: "localhost")) == ("localhost", nil))
        #expect(try await outcome(.required, .init([record], additionalNames: ["localhost"])) == ("alias.example", nil))
        #expect(try await outcome(.required, .init([record], baseDomain: "127.0.0.1")) == (nil, .tlsaLookUpFailed))
        #expect(try await outcome(.required, .init([record], additionalNames: ["a..b"])) == (nil, .tlsaLookUpFailed))
        // They belong to usable records.
        for records in [[], [unusable]] {
            let response = TLSDANE.Response(records, baseDomain: "localhost", additionalNames: ["localhost"])
            #expect(try await outcome(.certificates, response) == (nil, .hostNameMismatch))
        }
    }

    private struct Bogus: Error, CustomStringConvertible {
        let description = "SERVFAIL\u{7}"
    }

    @Test(arguments: Way.all, [TLSDANE.Policy.required, .certificates, .opportunistic])
    func aLookUpThatFailsEndsTheConnection(_ way: Way, _ policy: TLSDANE.Policy) async throws {
        let (plain, server, _) = try Self.world(way.version)
        var client = plain
        client.trustRoots = try TestCertificates.authority.roots
        client.proof = .dane(TLSDANE(policy: policy) { _ in throw Bogus() })
        let link = try await UpgradeLink(way.transport)
        let error = try #require(try await way.upgrade(link, client, server).error)
        #expect(error.tls?.code == .tlsaLookUpFailed && error.operation == way.transport.operation)
        #expect(error.tls?.message == "the look-up of TLSA records for \"localhost\" failed: SERVFAIL\u{FFFD}")
        #expect(link.client.isOver)
    }

    @Test(arguments: Way.all) func aLookUpFindsNoAcceptableRecords(_ way: Way) async throws {
        let (plain, server, record) = try Self.world(way.version)
        var client = plain
        client.proof = .dane(TLSDANE(policy: .required) { _ in .init([]) })
        #expect(try await way.upgrade(UpgradeLink(way.transport), client, server).error?.tls?.code == .noUsableTLSARecord)
        client.proof = .dane(TLSDANE(policy: .opportunistic) { _ in TLSDANE.Response(Array(repeating: record, count: 101)) })
        let error = try await way.upgrade(UpgradeLink(way.transport), client, server).error
        #expect(error?.tls?.code == .tlsaLookUpFailed && error?.tls?.message.contains("at most 100") == true)
    }

    /// The look-up lasts until another handshake with the same limit has failed.
    @Test(arguments: Way.all) func theLimitOfTheHandshakeDoesNotApplyToALookUp(_ way: Way) async throws {
        let (plain, server, record) = try Self.world(way.version)
        var limited = plain
        limited.handshakeTimeout = .seconds(1)
        var client = limited
        let silent = try await UpgradeLink(way.transport)
        client.proof = .dane(
            TLSDANE(policy: .required, timeout: .patient) { [limited] _ in
                let error = await #expect(throws: AsyncSocketError.self) { try await silent.client.upgrade(limited) }
                #expect(error?.code == .handshakeTimeout)
                return TLSDANE.Response([record])
            })
        let link = try await UpgradeLink(way.transport)
        #expect(try await way.upgrade(link, client, server).get().dane == .matched(record))
    }

    /// The closure is cancelled. Records that it returns afterwards are ignored.
    @Test(arguments: Way.all, [false, true]) func aLookUpHasALimitOfItsOwn(_ way: Way, isLate: Bool) async throws {
        let (plain, server, record) = try Self.world(way.version)
        var client = plain
        let cancelled = try TestSignal()
        client.proof = .dane(
            TLSDANE(policy: .opportunistic, timeout: .milliseconds(50)) { _ in
                do {
                    try await waitUntilCancelled()
                } catch {
                    cancelled.fire()
                    guard isLate else { throw error }
                }
                return TLSDANE.Response([record])
            })
        let link = try await UpgradeLink(way.transport)
        let error = try #require(try await way.upgrade(link, client, server).error)
        #expect(error.tls?.code == .tlsaLookUpFailed && error.tls?.message.contains("did not complete within") == true)
        try await cancelled.wait(within: .patient)
        #expect(link.client.isOver && !link.client.wasOpened)
    }

    @Test(arguments: Transport.allCases) func aClosedConnectionCancelsItsLookUp(_ transport: Transport) async throws {
        var (client, _, _) = try Self.world(transport == .stream ? .tls13 : .dtls12)
        let (begun, cancelled) = (try TestSignal(), try TestSignal())
        client.proof = .dane(
            TLSDANE(policy: .required, timeout: .patient) { _ in
                begun.fire()
                do {
                    try await waitUntilCancelled()
                } catch {
                    cancelled.fire()
                    throw error
                }
                return TLSDANE.Response([])
            })
        let link = try await UpgradeLink(transport)
        try link.client.begin(client)
        try await begun.wait(within: .patient)
        #expect(!link.client.isSecure)
        link.client.close()
        try await cancelled.wait(within: .patient)
        #expect(link.client.isOver)
    }
}

extension Result {
    fileprivate var error: Failure? { if case .failure(let error) = self { error } else { nil } }
}

extension UpgradeEnd {
    fileprivate var session: TLSSession? {
        switch self {
        case .stream(let socket, _): socket.tlsSession
        case .datagrams(let socket, _): socket.tlsSession
        }
    }

    /// Waits until the connection is secure, and throws the reason if it closes before that.
    fileprivate func securedOrEnded() async throws {
        switch self {
        case .stream(_, let recorder?):
            switch await recorder.next() {
            case .secured: return
            case .disconnected(let error): throw error ?? Unexpected(description: "no reason")
            case let other: throw Unexpected(description: "\(other)")
            }
        case .datagrams(_, let recorder?):
            let error: AsyncSocketError?? = try await recorder.first {
                switch $0 {
                case .secured: .some(nil)
                case .closed(let error): .some(error)
                default: nil
                }
            }
            if let error = error.flatMap({ $0 }) { throw error }
        case .stream(_, nil), .datagrams(_, nil): throw NoDelegate()
        }
    }
}

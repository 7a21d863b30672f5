import AsyncSocketsTesting
import Foundation
import Testing

@testable import SocketTLS

/// Every rule for settings, with its error message, so that a test fails if a different rule refuses the
/// settings. The nearest valid settings are accepted.
@Suite struct SettingsErrorTests {
    private typealias Change = (inout TLSSettingValues) -> Void

    private struct Row {
        let words: String
        let change: Change
        /// Makes the settings valid.
        let mended: Change

        init(_ words: String, _ change: @escaping Change, mended: @escaping Change) {
            (self.words, self.change, self.mended) = (words, change, mended)
        }
    }

    private func expect(_ rows: [Row], of settings: TLSSettingValues, over transport: TLSTransport = .stream) {
        #expect(throws: Never.self) { try settings.validate(over: transport) }
        for row in rows {
            var changed = settings
            row.change(&changed)
            let error = #expect(throws: TLSError.self, "\(row.words)") { try changed.validate(over: transport) }
            #expect(error?.code == .invalidSettings && error?.fault == .caller)
            #expect(error?.message.contains(row.words) == true, "\(row.words): \(error?.message ?? "")")
            row.mended(&changed)
            #expect(throws: Never.self, "\(row.words), mended") { try changed.validate(over: transport) }
        }
    }

    private func ofClient() throws -> TLSSettingValues {
        var settings = try Fixture().client.values
        (settings.minimumVersion, settings.maximumVersion) = (.tls12, nil)
        return settings
    }

    private func ofServer() throws -> TLSSettingValues {
        var settings = try Fixture().server.values
        (settings.minimumVersion, settings.maximumVersion) = (.tls12, nil)
        return settings
    }

    private static func time(_ seconds: Double) -> Date { Date(timeIntervalSince1970: seconds) }

    // MARK: - Both sides

    @Test func rulesOfBothSides() throws {
        let longest = String(repeating: "a", count: 255)
        let many = (0..<256).map { String(repeating: "a", count: 252) + "\(100 + $0)" }
        let rows = [
            Row("DTLSv1.2 requires a datagram", { $0.minimumVersion = .dtls12 }, mended: { $0.minimumVersion = .tls12 }),
            Row("DTLSv1.2 requires a datagram", { $0.maximumVersion = .dtls12 }, mended: { $0.maximumVersion = .tls13 }),
            Row(
                "minimumVersion is TLSv1.3, which is newer than maximumVersion (TLSv1.2)",
                { ($0.minimumVersion, $0.maximumVersion) = (.tls13, .tls12) }, mended: { $0.maximumVersion = .tls13 }),
            Row(
                "policy.minimumVersion is TLSv1.3, which is newer than maximumVersion",
                { ($0.policy, $0.maximumVersion) = (.modern, .tls12) }, mended: { $0.maximumVersion = .tls13 }),
            Row(
                "\"\" in applicationProtocols has 0", { $0.applicationProtocols = ["h2", ""] },
                mended: { $0.applicationProtocols = ["h2", "a"] }),
            Row(
                "in applicationProtocols has 256", { $0.applicationProtocols = [longest + "a"] },
                mended: { $0.applicationProtocols = [longest] }),
            Row(
                "applicationProtocols must be at most 65,533 bytes long, but is 65536", { $0.applicationProtocols = many },
                mended: { $0.applicationProtocols = Array(many.dropLast()) }),
            Row(
                "applicationProtocols lists a protocol twice", { $0.applicationProtocols = ["h2", "http/1.1", "h2"] },
                mended: { $0.applicationProtocols = ["h2", "http/1.1", "H2"] }),
            Row(
                "maximumCertificateChainBytes must be from 1024 to 1048576, but is 1023",
                { $0.maximumCertificateChainBytes = 1023 },
                mended: { $0.maximumCertificateChainBytes = 1024 }),
            Row(
                "maximumCertificateChainBytes must be from 1024 to 1048576, but is 1048577",
                { $0.maximumCertificateChainBytes = 1_048_577 },
                mended: { $0.maximumCertificateChainBytes = 1_048_576 }),
            Row(
                "maximumCertificateChainLength must be from 1 to 100, but is 0", { $0.maximumCertificateChainLength = 0 },
                mended: { $0.maximumCertificateChainLength = 1 }),
            Row(
                "maximumCertificateChainLength must be from 1 to 100, but is 101", { $0.maximumCertificateChainLength = 101 },
                mended: { $0.maximumCertificateChainLength = 100 }),
            Row(
                "handshakeTimeout must be greater than zero, but is 0.0 seconds", { $0.handshakeTimeout = .zero },
                mended: { $0.handshakeTimeout = .nanoseconds(1) }),
            Row(
                "trustTimeout must be greater than zero, but is -1.0 seconds", { $0.trustTimeout = .seconds(-1) },
                mended: { $0.trustTimeout = .nanoseconds(1) }),
            Row(
                "verificationTime must be within 3,000 years", { $0.rules.verificationTime = Self.time(1e11) },
                mended: { $0.rules.verificationTime = Self.time(9e10) }),
            Row(
                "verificationTime must be within 3,000 years", { $0.rules.verificationTime = Self.time(-.infinity) },
                mended: { $0.rules.verificationTime = Self.time(-9e10) }),
            Row(
                "pins is empty, so no key would match", { $0.rules.pins = [] }, mended: { $0.rules.pins = nil }),
            Row(
                "a pin must be 32 bytes long (SHA-256), but is 31", { $0.rules.pins = [[UInt8](repeating: 1, count: 31)] },
                mended: { $0.rules.pins = [[UInt8](repeating: 1, count: 32)] }),
        ]
        expect(rows, of: try ofClient())
        expect(rows, of: try ofServer())
    }

    // MARK: - Clients

    @Test func rulesOfClients() throws {
        expect(
            [
                Row(
                    "the connection was not made to a host", { $0.serverName = nil },
                    mended: { $0 = $0.expecting("localhost") }),
                Row(
                    "trustRoots is empty", { $0.trustRoots = .certificates([]) },
                    mended: { $0.trustRoots = .system }),
            ], of: try ofClient())
    }

    @Test func rulesOfEarlyDataOfClients() throws {
        var settings = try ofClient()
        (settings.earlyData, settings.resumption) = (TLSEarlyData([1]), .inMemory)
        let store = TLSInMemorySessionStore()
        expect(
            [
                Row(
                    "the size of earlyData (in bytes) must be from 1 to 65536, but is 0", { $0.earlyData?.bytes = [] },
                    mended: { $0.earlyData?.bytes = [1] }),
                Row(
                    "the size of earlyData (in bytes) must be from 1 to 65536, but is 65537",
                    { $0.earlyData?.bytes = [UInt8](repeating: 1, count: 65_537) },
                    mended: { $0.earlyData?.bytes.removeLast() }),
                Row(
                    "earlyData requires session resumption, but resumption is .none", { $0.resumption = .none },
                    mended: { $0.resumption = .store(store) }),
                Row(
                    "earlyData is sent before the trust callback can decide", { $0.trustEvaluation = .delegate },
                    mended: { $0.trustEvaluation = .builtIn }),
                Row(
                    "earlyData is sent before the trust callback can decide", { $0.trustEvaluation = .manual },
                    mended: { $0.earlyData = nil }),
                Row(
                    "earlyData is for the protocol \"h3\", but applicationProtocols does not contain it",
                    { values in
                        values.earlyData?.applicationProtocol = "h3"
                        values.applicationProtocols = ["h2"]
                    },
                    mended: { $0.applicationProtocols = ["h2", "h3"] }),
                Row(
                    "earlyData has no applicationProtocol",
                    { $0.applicationProtocols = ["h2", "h3"] }, mended: { $0.applicationProtocols = ["h2"] }),
                Row(
                    "earlyData requires TLS 1.3, but maximumVersion is TLSv1.2", { $0.maximumVersion = .tls12 },
                    mended: { $0.maximumVersion = .tls13 }),
            ], of: settings)
    }

    @Test func rulesOfKeysOfClients() throws {
        var settings = try PreSharedKeyFixture().client.values
        (settings.minimumVersion, settings.maximumVersion) = (.tls12, nil)
        let store = TLSInMemorySessionStore()
        func key(_ identity: [UInt8], _ hash: TLSPreSharedKey.HashAlgorithm = .sha256) throws -> TLSPreSharedKeys {
            TLSPreSharedKeys(try TLSPreSharedKey(identity: identity, key: PreSharedKeyFixture.bytes, hash: hash))
        }
        let (long, short) = (try key([UInt8](repeating: 1, count: 129)), try key([UInt8](repeating: 1, count: 128)))
        let (zero, sha384) = (try key([1, 0]), try key([1], .sha384))
        expect(
            [
                Row(
                    "raw public keys and pre-shared keys do not support resumption", { $0.resumption = .store(store) },
                    mended: { $0.resumption = .none }),
                Row(
                    "the pre-shared key uses SHA-384, which requires TLS 1.3", { $0.preSharedKeys = sha384 },
                    mended: { $0.minimumVersion = .tls13 }),
                Row(
                    "at most 128 bytes and no zero bytes", { $0.preSharedKeys = long }, mended: { $0.preSharedKeys = short }),
                Row("at most 128 bytes and no zero bytes", { $0.preSharedKeys = zero }, mended: { $0.minimumVersion = .tls13 }),
            ], of: settings)
    }

    // MARK: - Servers

    @Test func rulesOfServers() throws {
        let (fixture, other) = (try Fixture(), try Fixture())
        let roots = try fixture.authority.roots
        let spare = try #require(other.server.identity)
        expect(
            [
                Row("identity is nil", { $0.identity = nil }, mended: { $0.identity = spare }),
                Row(
                    "identity and additionalIdentities contain two EC keys", { $0.additionalIdentities = [spare] },
                    mended: { $0.additionalIdentities = [] }),
                Row(
                    "the number of session tickets must be from 1 to 8, but is 0", { $0.tickets = .issued(0) },
                    mended: { $0.tickets = .issued(1) }),
                Row(
                    "the number of session tickets must be from 1 to 8, but is 9", { $0.tickets = .issued(9) },
                    mended: { $0.tickets = .issued(8) }),
                Row(
                    "sessionTickets store the verdict on a client certificate",
                    { values in
                        (values.tickets, values.trustEvaluation) = (.issued(1), .manual)
                        (values.clientCertificates, values.trustRoots) = (.required, roots)
                    }, mended: { $0.trustEvaluation = .delegate }),
                Row(
                    "sessionTickets store the verdict on a client certificate",
                    { values in
                        (values.tickets, values.trustEvaluation) = (.issued(1), .manual)
                        (values.clientCertificates, values.trustRoots) = (.optional, roots)
                    }, mended: { $0.tickets = .none }),
                // A server needs trust roots if it requests certificates.
                Row(
                    "trustRoots is empty",
                    { ($0.trustRoots, $0.clientCertificates) = (.certificates([]), .optional) },
                    mended: { $0.clientCertificates = .none }),
            ], of: try ofServer())
    }

    @Test func rulesOfEarlyDataOfServers() throws {
        var fixture = try Fixture()
        func early(_ limit: Int) -> TLSSettingValues {
            fixture.server.acceptedEarlyData = TLSAcceptedEarlyData(upTo: limit)
            fixture.server.sessionTickets = .issued(1)
            return fixture.server.values
        }
        var settings = early(1)
        (settings.minimumVersion, settings.maximumVersion) = (.tls12, nil)
        let (none, most, more) = (early(0), early(65_536), early(65_537))
        let (roots, keys) = (try fixture.authority.roots, try ProofTests.Source())
        let shared = TLSPreSharedKeys(try PreSharedKeyFixture.key())
        expect(
            [
                Row(
                    "acceptedEarlyData.maximumBytes must be from 1 to 65536, but is 0",
                    { $0.acceptedEarlyData = none.acceptedEarlyData },
                    mended: { $0.acceptedEarlyData = nil }),
                Row(
                    "acceptedEarlyData.maximumBytes must be from 1 to 65536, but is 65537",
                    { $0.acceptedEarlyData = more.acceptedEarlyData },
                    mended: { $0.acceptedEarlyData = most.acceptedEarlyData }),
                Row(
                    "acceptedEarlyData requires TLS 1.3, but maximumVersion is TLSv1.2", { $0.maximumVersion = .tls12 },
                    mended: { $0.maximumVersion = .tls13 }),
                Row(
                    "acceptedEarlyData requires session tickets", { $0.tickets = .none }, mended: { $0.tickets = .issued(1) }),
                Row(
                    "shared ticket keys", { $0.tickets = .issued(1, keys: keys) },
                    mended: { $0.tickets = .issued(1) }),
                Row(
                    "requires clients to be .anyone", { ($0.clientCertificates, $0.trustRoots) = (.optional, roots) },
                    mended: { $0.clientCertificates = .none }),
                Row(
                    "requires clients to be .anyone", { $0.clientCertificates = .onRequest },
                    mended: { $0.clientCertificates = .none }),
                Row(
                    "requires clients to be .anyone", { $0.proof = .preSharedKeys(shared.used(.preferred)) },
                    mended: { $0.proof = .certificates }),
                Row(
                    "cannot be combined with sessionTickets", { $0.proof = .preSharedKeys(shared) },
                    mended: { $0.proof = .certificates }),
            ], of: settings)
    }

    // MARK: - Datagrams

    private static var versions: [Row] {
        [
            Row(
                "minimumVersion or the policy requires TLSv1.3", { $0.minimumVersion = .tls13 },
                mended: { $0.minimumVersion = .dtls12 }),
            Row("minimumVersion or the policy requires TLSv1.3", { $0.policy = .modern }, mended: { $0.policy = .intermediate }),
            Row(
                "handshakeTimeout must be greater than zero", { $0.handshakeTimeout = .zero },
                mended: { $0.handshakeTimeout = .milliseconds(1) }),
        ]
    }

    @Test func rulesOfClientsOverDatagrams() throws {
        expect(
            Self.versions + [
                Row("earlyData requires TLS 1.3", { $0.earlyData = TLSEarlyData([1]) }, mended: { $0.earlyData = nil }),
                Row(
                    "allowsPostHandshakeAuthentication requires TLS 1.3", { $0.allowsPostHandshakeAuthentication = true },
                    mended: { $0.allowsPostHandshakeAuthentication = false }),
            ], of: try ofClient(), over: .datagrams)
    }

    @Test func rulesOfServersOverDatagrams() throws {
        let fixture = try Fixture()
        let roots = try fixture.authority.roots
        var newer = fixture.server
        newer.minimumVersion = .tls13
        let names = try TLSServerNames([Fixture.host: newer])
        let accepting = TLSAcceptedEarlyData(upTo: 100)
        expect(
            Self.versions + [
                Row(
                    "clients set to .certificatesOnRequest requires TLS 1.3",
                    { ($0.clientCertificates, $0.trustRoots) = (.onRequest, roots) },
                    mended: { $0.clientCertificates = .required }),
                Row(
                    "acceptedEarlyData requires TLS 1.3", { $0.acceptedEarlyData = accepting },
                    mended: { $0.acceptedEarlyData = nil }),
                Row(
                    "only DTLS 1.2 is supported", { $0.serverNames = names },
                    mended: { $0.serverNames = nil }),
            ], of: try ofServer(), over: .datagrams)
    }
}

import AsyncSocketsTesting
import COpenSSL
import SocketTestSupport
import Testing

@testable import SocketTLS

/// Servers that are authenticated by TLSA records, in memory.
@Suite struct DANETests {
    private static let forms: [(TLSARecord.Selector, TLSARecord.MatchingType)] = [
        (.certificate, .full), (.certificate, .sha256), (.certificate, .sha512), (.publicKey, .full), (.publicKey, .sha256),
        (.publicKey, .sha512),
    ]

    // MARK: - Usages

    /// The roots do not contain its issuer, it is for another name, and it has expired.
    @Test(arguments: versions, forms) func aDANEEERecordNeedsNoNameAndNoValidityPeriod(
        _ version: TLSProtocolVersion, _ form: (TLSARecord.Selector, TLSARecord.MatchingType)
    ) throws {
        var fixture = try DANEFixture(version, names: ["other.example.org"], validity: .expired)
        let record = try fixture.record(.daneEE, \.leaf, form.0, form.1)
        fixture.expect([record])
        let pair = try fixture.shaken()
        #expect(pair.isComplete && pair.client.session?.dane == .matched(record))
        #expect(try pair.exchange([1, 2], from: .server) == [1, 2])
    }

    @Test(arguments: versions, forms) func aDANETARecordNeedsNoTrustedRoot(
        _ version: TLSProtocolVersion, _ form: (TLSARecord.Selector, TLSARecord.MatchingType)
    ) throws {
        var fixture = try DANEFixture(version)
        let record = try fixture.record(.daneTA, \.intermediate, form.0, form.1)
        fixture.expect([record])
        #expect(try fixture.shaken().client.session?.dane == .matched(record))
    }

    @Test(arguments: versions) func aDANETARecordNeedsTheNameAndTheDates(_ version: TLSProtocolVersion) throws {
        var named = try DANEFixture(version, names: ["other.example.org"])
        named.expect([try named.record(.daneTA, \.intermediate)])
        #expect(try named.shaken().clientError?.code == .hostNameMismatch)
        var expired = try DANEFixture(version, validity: .expired)
        expired.expect([try expired.record(.daneTA, \.intermediate)])
        #expect(try expired.shaken().clientError?.code == .certificateExpired)
        // The record matches, although the server does not send the root.
        expired.expect([try expired.record(.daneTA, \.root, .certificate, .full)])
        let error = try #require(try expired.shaken().clientError)
        #expect(error.code == .certificateExpired && error.message.contains("\"2 0 0 "))
        #expect(!error.message.contains("matches no authority"))
    }

    /// The server sends its certificate and the intermediate, but not the root.
    @Test(arguments: versions) func theAuthorityOfADigestHasToBeSent(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        fixture.expect([try fixture.record(.daneTA, \.root)])
        let error = try #require(try fixture.shaken().clientError)
        #expect(error.code == .tlsaMismatch && error.message.contains("matches no authority that the server sent"))
        // Not even if the client trusts the root.
        fixture.client.trustRoots = try fixture.base.authority.roots
        #expect(try fixture.shaken().clientError?.code == .tlsaMismatch)
        // A record with the whole certificate or key contains what the server does not send.
        for selector in [TLSARecord.Selector.certificate, .publicKey] {
            let record = try fixture.record(.daneTA, \.root, selector, .full)
            fixture.expect([record])
            #expect(try fixture.shaken().client.session?.dane == .matched(record))
        }
    }

    @Test(arguments: versions) func pkixRecordsNeedATrustedRootToo(_ version: TLSProtocolVersion) throws {
        for (usage, certificate) in [(TLSARecord.Usage.pkixEE, \DANEFixture.leaf), (.pkixTA, \.intermediate), (.pkixTA, \.root)] {
            var fixture = try DANEFixture(version)
            let record = try fixture.record(usage, certificate)
            fixture.expect([record])
            #expect(try fixture.shaken().clientError?.code == .unknownIssuer)
            fixture.client.trustRoots = try fixture.base.authority.roots
            #expect(try fixture.shaken().client.session?.dane == .matched(record))
            // A chain to a trusted root is not enough.
            fixture.expect(
                [try DANEFixture.otherRecord].map {
                    TLSARecord(
                        usage: usage, selector: .publicKey, matchingType: .sha256, data: $0.data)
                })
            #expect(try fixture.shaken().clientError?.code == .tlsaMismatch)
        }
    }

    // MARK: - Several records

    @Test(arguments: versions) func oneOfSeveralRecordsIsEnough(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        let record = try fixture.record
        fixture.expect(try [DANEFixture.otherRecord, TLSARecord("9 9 9 00"), record, fixture.record(.daneTA, \.root)])
        #expect(try fixture.shaken().client.session?.dane == .matched(record))
    }

    /// RFC 7671, section 9: an attacker who can forge SHA-256 must not be able to choose it.
    @Test(arguments: versions) func onlyTheStrongestDigestCounts(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        var strong = try DANEFixture.otherRecord
        (strong.matchingType, strong.data) = (.sha512, [UInt8](repeating: 1, count: 64))
        fixture.expect(try [fixture.record, strong])
        let error = try #require(try fixture.shaken().clientError)
        #expect(error.code == .tlsaMismatch && error.message.contains("stronger digest"))
        // Each selector has its own digests.
        strong.selector = .certificate
        fixture.expect(try [fixture.record, strong])
        #expect(try fixture.shaken().isComplete)
    }

    @Test(arguments: versions, TLSTrustEvaluation.allNarrowing) func recordsThatDoNotMatchEndTheConnection(
        _ version: TLSProtocolVersion, _ mode: TLSTrustEvaluation
    ) throws {
        var fixture = try DANEFixture(version)
        // The chain itself is trusted, and no policy helps.
        fixture.client.trustRoots = try fixture.base.authority.roots
        fixture.client.trustEvaluation = mode
        let other = try DANEFixture.otherRecord
        for policy in [TLSDANE.Policy.required, .certificates, .opportunistic] {
            fixture.expect([other], policy)
            let pair = try fixture.shaken(decision: true)
            #expect(!pair.isComplete && pair.client.session == nil && pair.clientQuestions.isEmpty)
            let error = try #require(pair.clientError)
            #expect(error.code == .tlsaMismatch && error.fault == .certificate && error.sentAlert == .badCertificate)
            #expect(error.message.contains("3 1 1 \(other.data.prefix(16).hexadecimalText)"))
            #expect(error.message.contains("does not match the server's own") && error.message.contains(Fixture.host))
            #expect(pair.serverError?.alert == .badCertificate && error.peerTrust?.leaf == fixture.leaf)
        }
    }

    @Test func aMismatchListsUsableAndUnusableRecords() throws {
        var fixture = try DANEFixture()
        let others = try (0..<6).map { try TLSARecord("3 1 1 " + String(repeating: "0\($0)", count: 32)) }
        fixture.expect(try others + [TLSARecord("9 9 9 00")])
        let message = try #require(try fixture.shaken().clientError?.message)
        #expect(message.contains(" and 2 more, \"9 9 9 00\" (unusable: its usage is unknown)"))
    }

    // MARK: - Without usable records

    /// A domain with such a record must not be treated like a domain without records.
    @Test(arguments: [TLSDANE.Policy.required, .certificates, .opportunistic])
    func aRecordThatExceedsALimitMatchesNothing(_ policy: TLSDANE.Policy) throws {
        var fixture = try DANEFixture()
        fixture.client.trustRoots = try fixture.base.authority.roots
        let (large, other) = (try DANEFixture.recordOfLargeKey, try DANEFixture.otherRecord)
        #expect(large.isUsable)
        let reason = "an RSA key of 16384 bits, but at most 8192 are accepted"
        for records in try [[large], [TLSARecord("3 1 1 00"), large]] {
            fixture.expect([other], policy)
            let context = try TLSContext.context(for: fixture.client)
            fixture.expect(records, policy)
            let errors = [
                thrown { try fixture.base.pair() }, thrown { try TLSEngine(context: context, settings: fixture.client) },
            ]
            for error in errors {
                #expect(error?.code == .tlsaMismatch && error?.fault == .certificate)
                #expect(error?.message.contains(reason) == true)
            }
        }
        fixture.expect([large, other], policy)
        let error = try #require(try fixture.shaken().clientError)
        #expect(error.code == .tlsaMismatch && error.message.contains("cannot match: its data has \(reason)"))
        fixture.expect([large, try fixture.record], policy)
        #expect(try fixture.shaken().isComplete)
    }

    private static let unusable = [
        "4 1 1 \(digits(32))", "3 2 1 \(digits(32))", "3 1 3 \(digits(32))", "3 1 1 \(digits(31))",
        "3 1 2 \(digits(32))", "2 0 0 3000", "2 1 0 3000", "3 0 0 \(digits(32))",
    ]

    private static func digits(_ count: Int) -> String { String(repeating: "ab", count: count) }

    @Test(arguments: unusable) func unusableRecordsAreSkipped(_ text: String) throws {
        let record = try TLSARecord(text)
        #expect(!record.isUsable)
        var fixture = try DANEFixture()
        fixture.expect([record, try fixture.record])
        #expect(try fixture.shaken().isComplete)
        fixture.expect([record])
        let error = #expect(throws: TLSError.self) { try fixture.base.pair() }
        #expect(error?.code == .noUsableTLSARecord && error?.message.contains(text.prefix(16)) == true)
    }

    @Test(arguments: versions, [[], ["3 1 1 00"]]) func withoutUsableRecordsThePolicyDecides(
        _ version: TLSProtocolVersion, _ texts: [String]
    ) throws {
        var fixture = try DANEFixture(version, names: ["other.example.org"], validity: .expired)
        let records = try texts.map { try TLSARecord($0) }
        fixture.expect(records, .required)
        #expect(thrown { try fixture.base.pair() }?.code == .noUsableTLSARecord)
        fixture.expect(records, .certificates)
        #expect(try fixture.shaken().clientError?.code == .unknownIssuer)
        fixture.expect(records, .opportunistic)
        #expect(try fixture.shaken().client.session?.dane == .unauthenticated)
        // Whether the certificate would have been trusted makes no difference.
        var valid = try DANEFixture(version)
        valid.client.trustRoots = try valid.base.authority.roots
        valid.expect(records, .certificates)
        #expect(try valid.shaken().client.session?.dane == .certificates)
        valid.expect(records, .opportunistic)
        #expect(try valid.shaken().client.session?.dane == .unauthenticated)
    }

    @Test func pkixRecordsCanBeUnusable() throws {
        var fixture = try DANEFixture()
        fixture.client.trustRoots = try fixture.base.authority.roots
        var dane = TLSDANE([try fixture.record(.pkixEE, \.leaf)], policy: .required)
        dane.usesPKIXRecords = false
        fixture.client.proof = .dane(dane)
        let error = thrown { try fixture.base.pair() }
        #expect(error?.code == .noUsableTLSARecord && error?.message.contains("PKIX usages are not accepted") == true)
        dane.usesPKIXRecords = true
        fixture.client.proof = .dane(dane)
        #expect(try fixture.shaken().isComplete)
        // Mail servers have no common list of roots.
        #expect(dane.usesPKIXRecords && TLSDANE([], policy: .certificates).usesPKIXRecords)
        #expect(!TLSDANE([], policy: .opportunistic).usesPKIXRecords)
        #expect(!TLSDANE(policy: .opportunistic) { _ in .init([]) }.usesPKIXRecords)
    }

    // MARK: - Names

    @Test(arguments: versions) func additionalNamesCount(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version, names: ["example.org"])
        var dane = TLSDANE([try fixture.record(.daneTA, \.intermediate)], policy: .required)
        fixture.client.proof = .dane(dane)
        #expect(try fixture.shaken().clientError?.code == .hostNameMismatch)
        dane.additionalNames = ["example.net"]
        fixture.client.proof = .dane(dane)
        #expect(try fixture.shaken().clientError?.message.contains("\(Fixture.host)\", \"example.net\"; ") == true)
        dane.additionalNames = ["example.net", "example.org"]
        fixture.client.proof = .dane(dane)
        let pair = try fixture.shaken()
        #expect(pair.isComplete && pair.server.session?.serverName == Fixture.host)
        // They belong to the records.
        dane = TLSDANE([], policy: .certificates, additionalNames: ["example.org"])
        fixture.client.proof = .dane(dane)
        fixture.client.trustRoots = try fixture.base.authority.roots
        #expect(try fixture.shaken().clientError?.code == .hostNameMismatch)
    }

    @Test(arguments: versions, ["MAIL.Example.org", "mail.example.org."])
    func otherSpellingsOfTheNameCount(_ version: TLSProtocolVersion, _ name: String) throws {
        var fixture = try DANEFixture(version)
        fixture.client.serverName = name
        let records = [try fixture.record, try fixture.record(.daneTA, \.intermediate)]
        for record in records {
            fixture.expect([record])
            #expect(try fixture.shaken().client.session?.dane == .matched(record))
        }
        fixture.expect([try DANEFixture.otherRecord])
        #expect(try fixture.shaken().clientError?.code == .tlsaMismatch)
    }

    // MARK: - Other rules

    @Test(arguments: versions) func theTrustCallbackCanOnlyReject(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        fixture.client.trustEvaluation = .delegate
        fixture.expect([try fixture.record])
        let accepted = try fixture.shaken(decision: true)
        #expect(accepted.isComplete && accepted.clientQuestions.map(\.verdict) == [.trusted])
        #expect(accepted.client.session?.dane == .matched(try fixture.record))
        #expect(try fixture.shaken(decision: false).clientError?.code == .trustRejected)
        // Without authentication, the callback is still called with OpenSSL's verdict.
        fixture.expect([], .opportunistic)
        let asked = try fixture.shaken(decision: true)
        #expect(asked.isComplete && asked.clientQuestions.map(\.verdict) != [.trusted])
        #expect(try fixture.shaken(decision: false).clientError?.code == .trustRejected)
    }

    @Test(arguments: versions) func pinsApplyInAddition(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        let records = [try fixture.record]
        fixture.expect(records, .required, TLSCertificateRules(pins: [fixture.leaf.publicKeySHA256]))
        #expect(try fixture.shaken().client.session?.matchesPins == true)
        // The record authenticates only the server's own key.
        for pin in [fixture.intermediate.publicKeySHA256, [UInt8](repeating: 1, count: 32)] {
            fixture.expect(records, .required, TLSCertificateRules(pins: [pin]))
            #expect(try fixture.shaken().clientError?.code == .pinMismatch)
        }
        fixture.expect([], .opportunistic, TLSCertificateRules(pins: [fixture.intermediate.publicKeySHA256]))
        #expect(try fixture.shaken().clientError?.code == .pinMismatch)
    }

    @Test(arguments: versions) func limitsApplyInAddition(_ version: TLSProtocolVersion) throws {
        var fixture = try DANEFixture(version)
        for policy in [TLSDANE.Policy.required, .opportunistic] {
            fixture.expect(policy == .required ? [try fixture.record] : [], policy)
            fixture.client.maximumCertificateChainLength = 1
            #expect(try fixture.shaken().clientError?.code == .certificateTooLarge)
            fixture.client.maximumCertificateChainLength = 10
            #expect(try fixture.shaken().isComplete)
        }
    }

    @Test(arguments: versions) func revocationNeedsAnIssuer(_ version: TLSProtocolVersion) throws {
        let (root, intermediate, leaf) = try HandmadeCertificate.chain()
        let lists = try [root, intermediate].map { try TemporaryFile(bytes: $0.revocationList()) }
        let revoked = try TemporaryFile(bytes: intermediate.revocationList(of: [leaf]))
        var fixture = try Fixture(version, leaf: leaf, roots: [root])
        func result(_ usage: TLSARecord.Usage, _ files: [TemporaryFile]) throws -> TLSError? {
            let certificate = usage == .daneEE ? try leaf.certificate : try intermediate.certificate
            let rules = TLSCertificateRules(revocationLists: files.map { .file(path: $0.path) }, revocationScope: .leaf)
            fixture.client.proof = .dane(TLSDANE([try TLSARecord(for: certificate, usage: usage)], policy: .required), rules)
            return try fixture.clientError()
        }
        #expect(try result(.pkixTA, lists) == nil && result(.daneTA, lists) == nil)
        #expect(try result(.pkixTA, [lists[0], revoked])?.code == .certificateRevoked)
        #expect(try result(.daneTA, [lists[0], revoked])?.code == .certificateRevoked)
        let error = try #require(try result(.daneEE, lists))
        #expect(error.code == .certificateRejected && error.message.contains("its usage has no issuer"))
        #expect(try result(.daneEE, []) == nil)
    }

    @Test(arguments: versions) func stapledResponsesNeedAnIssuer(_ version: TLSProtocolVersion) throws {
        let (_, intermediate, leaf) = try HandmadeCertificate.chain()
        let revoked = try intermediate.response(about: leaf, .init(status: V_OCSP_CERTSTATUS_REVOKED))
        let server = try StaplingServer(leaf, chain: [intermediate], response: revoked)
        func error(_ usage: TLSARecord.Usage, _ stapling: TLSOCSPStapling) throws -> TLSError? {
            var settings = try DANEFixture(version).client
            let certificate = usage == .daneEE ? try leaf.certificate : try intermediate.certificate
            let dane = TLSDANE([try TLSARecord(for: certificate, usage: usage)], policy: .required)
            settings.proof = .dane(dane, ocspStapling: stapling)
            return try server.error(of: settings).error
        }
        #expect(try error(.daneTA, .requested)?.code == .certificateRevoked)
        #expect(try error(.daneEE, .requested) == nil)
        #expect(try error(.daneEE, .required)?.message.contains("its usage has no issuer") == true)
        // A response that was not checked is not published.
        let good = try StaplingServer(leaf, chain: [intermediate], response: intermediate.response(about: leaf))
        func response(_ usage: TLSARecord.Usage) throws -> [UInt8]? {
            var settings = try DANEFixture(version).client
            let certificate = usage == .daneEE ? try leaf.certificate : try intermediate.certificate
            let dane = TLSDANE([try TLSARecord(for: certificate, usage: usage)], policy: .required)
            settings.proof = .dane(dane, ocspStapling: .requested)
            return try #require(try good.client(settings).session).ocspResponse
        }
        #expect(try response(.daneTA) != nil && response(.daneEE) == nil)
    }

    /// Strict mode rejects the certificate of an authority, unless a record names it.
    @Test(arguments: versions) func aSelfSignedAuthorityMatchesInStrictMode(_ version: TLSProtocolVersion) throws {
        let leaf = try HandmadeCertificate("Server", HandmadeCertificate.authority)
        var fixture = try Fixture(version, leaf: leaf, roots: [leaf])
        func error(_ usage: TLSARecord.Usage) throws -> TLSError? {
            let dane = TLSDANE([try TLSARecord(for: leaf.certificate, usage: usage)], policy: .required)
            fixture.client.proof = .dane(dane, TLSCertificateRules(isStrict: true))
            return try fixture.clientError()
        }
        #expect(try error(.daneEE) == nil)
        #expect(try error(.pkixEE)?.fault == .certificate)
    }

    @Test func settingsThatWouldWeakenRecordsAreRejected() throws {
        let fixture = try DANEFixture()
        let record = try fixture.record
        func complaint(_ change: (inout TLSClientSettings) throws -> Void) rethrows -> String {
            var settings = fixture.client
            settings.proof = .dane(TLSDANE([record], policy: .opportunistic))
            try change(&settings)
            let error = thrown { try TLSContext.context(for: settings) }
            #expect(error?.code == .invalidSettings)
            return error?.message ?? ""
        }
        #expect(complaint { $0.trustEvaluation = .manual }.contains("use .delegate"))
        #expect(complaint { $0.verifiesHostName = false }.contains("verifiesHostName is false"))
        #expect(complaint { $0.serverName = "192.0.2.1" }.contains("belong to a host name"))
        #expect(
            complaint { $0.proof = .dane(TLSDANE([record], policy: .required, additionalNames: ["::1"])) }.contains("\"::1\""))
        #expect(
            complaint { $0.proof = .dane(TLSDANE([TLSARecord](repeating: record, count: 101), policy: .required)) }
                .contains("at most 100"))
        let large = TLSARecord(
            usage: .daneEE, selector: .publicKey, matchingType: .sha256, data: [UInt8](repeating: 0, count: 30_000))
        #expect(
            complaint { $0.proof = .dane(TLSDANE([record, large, large, large], policy: .required)) }.contains("at most 65535"))
        let full = try fixture.record(.daneEE, \.leaf, .publicKey, .full)
        #expect(
            complaint { $0.proof = .dane(TLSDANE([TLSARecord](repeating: full, count: 11), policy: .required)) }
                .contains("at most 10"))
        #expect(
            complaint { $0.proof = .dane(TLSDANE([record], policy: .opportunistic), ocspStapling: .required) }
                .contains("an authenticated server"))
    }
}

extension TLSTrustEvaluation {
    fileprivate static let allNarrowing: [TLSTrustEvaluation] = [.builtIn, .delegate]
}

extension Sequence where Element == UInt8 {
    fileprivate var hexadecimalText: String { Array(self).hexadecimal }
}

import Foundation
import Testing

@testable import SockcatCommands

/// The offers to a server, and the reports about every combination of results.
@Suite struct CapabilitySearchTests {
    private typealias Session = (version: String, suite: String)

    private static let sessions: [Session?] = [
        nil, ("TLSv1.3", "TLS_AES_256_GCM_SHA384"), ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"), ("TLSv1.2", "a suite that is not in the table"),
    ]

    /// The results of an offer that lead to different searches: the server selects any version up to the
    /// offered version, with the weakest or the strongest suite, or rejects the offer, or fails.
    private static func results(of offer: CapabilitySearch.Offer, isAboutVersion: Bool) -> [CapabilitySearch.Result] {
        let oldest: UInt16 =
            offer.version == 0x0304 || !isAboutVersion ? offer.version : offer.version == 0x0303 ? 0x0300 : 0x0301
        let suites = Set([offer.suites.first, offer.suites.last].compactMap(\.self))
        return [.rejected, .notTestable]
            + (oldest...offer.version).flatMap { version in suites.map { .accepted(version: version, suite: $0) } }
    }

    /// Calls `body` after every sequence of results. After two offers of weak suites, all others are rejected
    /// or cannot be tested.
    private static func forEachEnd(of search: CapabilitySearch, suiteOffers: Int = 0, _ body: (CapabilitySearch) -> Void) {
        guard let offer = search.next else { return body(search) }
        let isAboutVersion = offer.version != 0x0303 || offer.suites == SuiteTier.numbersUpToTLS12
        for result in suiteOffers < 2 ? results(of: offer, isAboutVersion: isAboutVersion) : [.rejected, .notTestable] {
            var next = search
            next.note(result)
            forEachEnd(of: next, suiteOffers: suiteOffers + (isAboutVersion ? 0 : 1), body)
        }
    }

    private static func report(_ session: Session?, _ search: CapabilitySearch) -> InspectionReport {
        var report = InspectionReport(target: "a:1", kind: .server, inspectedAt: Date(timeIntervalSince1970: 0), status: .ok)
        report.session = session.map {
            SessionReport(version: $0.version, cipherSuite: $0.suite, isTrusted: true, stapling: .notSent)
        }
        var capabilities = CapabilityReport(resumption: .notTestable, earlyData: .notTestable)
        search.describe(&capabilities)
        report.problems = Assessment.problems(of: capabilities)
        report.capabilities = capabilities
        return report
    }

    @Test func everyCombinationOfResultsGivesAReportWithoutContradictions() throws {
        var (texts, contradictions): (Set<String>, [String]) = ([], [])
        for session in Self.sessions {
            Self.forEachEnd(of: CapabilitySearch(negotiated: session)) { search in
                let text = ReportText(report: Self.report(session, search), style: .plain).full.text
                if texts.insert(text).inserted { contradictions += ReportChecker(text).contradictions }
            }
        }
        #expect(texts.count > 200)
        #expect(contradictions.isEmpty, "\(contradictions.prefix(10))")
    }

    /// The checker notices contradictions.
    @Test func aContradictionIsNoticed() {
        let text = { ReportText(report: $0, style: .plain).full.text }
        var report = Self.report(("TLSv1.3", "TLS_AES_256_GCM_SHA384"), CapabilitySearch())
        #expect(!ReportChecker(text(report)).contradictions.isEmpty)
        report = Self.report(nil, CapabilitySearch())
        #expect(ReportChecker(text(report)).contradictions.isEmpty)
        report.capabilities?.oldestVersion = "TLSv1.2"
        #expect(!ReportChecker(text(report)).contradictions.isEmpty)
    }

    @Test func aModernServerIsAskedThreeTimes() {
        var search = CapabilitySearch(negotiated: ("TLSv1.3", "TLS_AES_256_GCM_SHA384"))
        #expect(search.next?.version == 0x0303)
        search.note(.accepted(version: 0x0303, suite: 0xC030))
        #expect(search.next?.version == 0x0302)
        search.note(.rejected)
        #expect(search.next == CapabilitySearch.Offer(version: 0x0303, suites: SuiteTier.weakNumbers))
        search.note(.rejected)
        #expect(search.next == nil)
    }

    @Test func aRejectionSettlesAllOlderVersions() {
        var search = CapabilitySearch(negotiated: ("TLSv1.3", "TLS_AES_256_GCM_SHA384"))
        search.note(.rejected)
        #expect(search.next == nil)
        var report = CapabilityReport(resumption: .accepted, earlyData: .accepted)
        search.describe(&report)
        #expect(
            report.versions == ["TLSv1.0": .notAccepted, "TLSv1.1": .notAccepted, "TLSv1.2": .notAccepted, "TLSv1.3": .accepted])
        #expect(report.weakestSuiteText == "no weak suite accepted")
    }

    /// The weakest accepted suite is found, whichever suite the server prefers.
    @Test(arguments: [true, false]) func theWeakestSuiteIsFound(prefersStrong: Bool) {
        let weak = SuiteTier.weakNumbers
        for weakest in weak.indices {
            var search = CapabilitySearch(negotiated: ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"))
            let accepted = Set(weak[weakest...])
            var offers = 0
            while let offer = search.next {
                offers += 1
                let common = offer.version < 0x0303 ? [] : offer.suites.filter(accepted.contains)
                let suite = prefersStrong ? common.last : common.first
                search.note(suite.map { .accepted(version: 0x0303, suite: $0) } ?? .rejected)
            }
            var report = CapabilityReport(resumption: .accepted, earlyData: .accepted)
            search.describe(&report)
            #expect(offers <= 14, "\(offers)")
            #expect(report.weakestSuite == SuiteTier.name(of: weak[weakest]))
            #expect(report.acceptedKind.map(SuiteTier.isWeak) == true)
            #expect(report.suites.dropLast().allSatisfy { $0.support == .notAccepted })
        }
    }
}

/// Reads the text of a report as a person does, and compares its statements.
private struct ReportChecker {
    private let lines: [String: String]
    private let text: String

    init(_ text: String) {
        self.text = text
        var lines: [String: String] = [:]
        for line in text.split(separator: "\n") where line.hasPrefix("  ") {
            lines[line.dropFirst(2).prefix(16).trimmingCharacters(in: .whitespaces)] = String(line.dropFirst(18))
        }
        self.lines = lines
    }

    var contradictions: [String] {
        statements.filter { !$0.value }.map { "\($0.key):\n\(text)" }
    }

    private var statements: [String: Bool] {
        let versions = Dictionary(
            uniqueKeysWithValues: (lines["versions"] ?? "").components(separatedBy: ", ").map { part in
                (String(part.prefix { $0 != " " }), String(part.drop { $0 != " " }.dropFirst()))
            })
        let oldest = lines["oldest version"] ?? ""
        let (weakest, negotiated) = (lines["weakest suite"] ?? "", lines["negotiated"]?.components(separatedBy: ", ") ?? [])
        let accepted = TLSVersionName.all.filter { versions[$0] == "accepted" }
        let older = TLSVersionName.all.prefix { $0 != accepted.first }
        let isSuite = weakest.hasPrefix("TLS_")
        let warns = { (words: String) in text.contains("warning: the server \(words)") }
        return [
            "each version has a result": Set(versions.keys) == Set(TLSVersionName.all)
                && versions.values.allSatisfy { ["accepted", "not accepted", "not testable"].contains($0) },
            "the negotiated version is accepted": negotiated.first.map { versions[$0] == "accepted" } ?? true,
            "the oldest version is the oldest accepted one": accepted.first.map { oldest.hasPrefix($0) } ?? !oldest.hasPrefix(
                "TLS"),
            "no version is accepted if all are rejected":
                (oldest == "none accepted") == versions.values.allSatisfy { $0 == "not accepted" },
            "older versions are marked if they are not testable":
                oldest.contains("not testable") == older.contains { versions[$0] == "not testable" },
            "a suite is accepted only with a version": !isSuite || !accepted.isEmpty,
            "the weakest suite is weak, unknown or missing":
                isSuite
                ? isWeak(weakest) : weakest == "no weak suite accepted" || weakest.hasPrefix("unknown (suites not testable: "),
            "a weak negotiated suite is not weaker than the weakest":
                !isWeak(negotiated.dropFirst().first ?? "") || rank(weakest) <= rank(negotiated.dropFirst().first),
            "a weak suite is a warning": warns("accepts the cipher suite") == isSuite,
            "an old version is a warning":
                warns("accepts TLSv1.") == (accepted.first.map(TLSVersionName.obsolete.contains) ?? false),
            "a missing version is a warning": warns("does not support TLS 1.3") == (versions["TLSv1.3"] == "not accepted"),
        ]
    }

    private func name(_ text: String) -> String { String(text.prefix { $0 != " " }) }

    private func rank(_ text: String?) -> Int {
        SuiteTier.all.flatMap(\.suites).firstIndex { $0.name == text.map(name) } ?? .max
    }

    private func isWeak(_ text: String) -> Bool { SuiteTier.number(of: name(text)).map(SuiteTier.weakNumbers.contains) == true }
}

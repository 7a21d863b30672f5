/// Finds the versions that a server accepts, and whether it accepts weak cipher suites, with as few offers as
/// possible. A value without I/O: `next` is the offer to make, and `note(_:)` receives the result.
///
/// 1. A server selects the newest version that it and the client support. The session that was negotiated
///    therefore settles its own version and all newer versions, and each further offer settles all versions
///    down to the selected version. A rejection settles all older versions too.
/// 2. All weak suites are offered together, weakest first. If the server selects one, all weaker suites are
///    offered: a server that follows the client's order rejects them. If it selects another one, every second
///    offer contains half of the remaining suites.
/// 3. The search stops at the first offer that cannot be tested.
struct CapabilitySearch {
    struct Offer: Equatable {
        /// The newest version in the offer. An offer of TLS 1.3 contains no other version.
        var version: UInt16
        var suites: [UInt16]

        /// A server that selects SSL 3.0 accepts none of the versions.
        func allows(_ version: UInt16, _ suite: UInt16) -> Bool {
            let versions = self.version == 0x0304 ? self.version...self.version : 0x0301...self.version
            return versions.contains(version) && suites.contains(suite)
        }
    }

    enum Result: Equatable {
        case accepted(version: UInt16, suite: UInt16)
        case rejected
        case notTestable
    }

    private var versions = [Support?](repeating: nil, count: TLSVersionName.all.count)
    private var selected: Set<UInt16> = []
    private var weak = WeakSuiteSearch()
    private var hasStopped = false

    private static let oldest: UInt16 = 0x0301
    private static let tls13 = TLSVersionName.all.count - 1

    /// - Parameter session: The version and the suite that were negotiated when all versions were offered.
    init(negotiated session: (version: String, suite: String)? = nil) {
        guard let session, let version = TLSVersionName.all.firstIndex(of: session.version) else { return }
        settle(version, offered: Self.tls13)
        if let suite = SuiteTier.number(of: session.suite) {
            selected.insert(suite)
            weak.hint(suite)
        }
    }

    private var acceptsOldSuites: Bool { versions.dropLast().contains(.accepted) }

    /// The offer to make, or `nil` if the search is complete.
    var next: Offer? {
        if hasStopped { return nil }
        if let unknown = versions.lastIndex(where: { $0 == nil }) {
            let suites = unknown == Self.tls13 ? SuiteTier.numbersOfTLS13 : SuiteTier.numbersUpToTLS12
            return Offer(version: Self.oldest + UInt16(unknown), suites: suites)
        }
        return acceptsOldSuites ? weak.next.map { Offer(version: 0x0303, suites: $0) } : nil
    }

    /// Records the result of `next`.
    mutating func note(_ result: Result) {
        guard let offer = next else { return }
        let (unknown, offered) = (versions.contains(nil), Int(offer.version - Self.oldest))
        switch result {
        case .accepted(let version, let suite) where offer.allows(version, suite):
            selected.insert(suite)
            guard unknown else { return weak.accept(suite) }
            settle(Int(version - Self.oldest), offered: offered)
            weak.hint(suite)
        case .accepted, .rejected:
            if unknown { settle(nil, offered: offered) } else { weak.reject() }
        case .notTestable: hasStopped = true
        }
    }

    /// Records that the server selected a version, or `nil` if it rejected the offer. An offer of TLS 1.3
    /// contains no other version, except in the negotiated session.
    private mutating func settle(_ version: Int?, offered: Int) {
        for index in ((version ?? -1) + 1)..<(offered + 1) where versions[index] == nil {
            if version == nil, offered == Self.tls13, index < offered { continue }
            versions[index] = .notAccepted
        }
        if let version { versions[version] = .accepted }
    }

    /// Adds the results to a report.
    func describe(_ report: inout CapabilityReport) {
        for (name, support) in zip(TLSVersionName.all, versions) { report.versions[name] = support ?? .notTestable }
        report.oldestVersion = TLSVersionName.all.first { report.versions[$0] == .accepted }
        report.suites = []
        for tier in SuiteTier.all {
            let support = support(of: tier)
            report.suites.append(SuiteReport(kind: tier.kind, support: support))
            if support == .accepted { break }
        }
        report.weakestSuite = SuiteTier.weakNumbers.first(where: selected.contains).map(SuiteTier.name)
    }

    private func support(of tier: SuiteTier) -> Support {
        let numbers = tier.suites.map(\.number)
        if !selected.isDisjoint(with: numbers) { return .accepted }
        let possible = tier.kind == SuiteTier.tls13.kind ? versions.suffix(1) : versions.dropLast()
        if possible.allSatisfy({ $0 == .notAccepted }) { return .notAccepted }
        return weak.rejects(numbers) ? .notAccepted : .notTestable
    }
}

/// The search for the weakest of the weak suites that a server accepts.
private struct WeakSuiteSearch {
    private let suites = SuiteTier.weakNumbers
    /// The suites before this index are rejected.
    private var start = 0
    /// The index of the weakest suite that the server has selected, or the number of suites.
    private var end = SuiteTier.weakNumbers.count
    /// Whether the next offer contains half of the remaining suites.
    private var halves = false
    private var hasSelected = false

    private var offerEnd: Int { halves ? start + max(1, (end - start) / 2) : end }

    var next: [UInt16]? { start < end ? Array(suites[start..<offerEnd]) : nil }

    mutating func reject() { (start, halves) = (offerEnd, false) }

    /// Records that the server selected a suite of `next`.
    mutating func accept(_ suite: UInt16) {
        let halves = hasSelected && !halves
        hint(suite)
        self.halves = halves
    }

    /// Records that the server selected a suite, weak or not, of another offer.
    mutating func hint(_ suite: UInt16) {
        guard let index = suites.firstIndex(of: suite), index < end else { return }
        (start, end, halves, hasSelected) = (min(start, index), index, false, true)
    }

    func rejects(_ numbers: [UInt16]) -> Bool { numbers.allSatisfy(suites[..<start].contains) }
}

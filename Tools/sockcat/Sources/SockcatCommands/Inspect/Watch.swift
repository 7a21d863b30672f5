internal import Dispatch
internal import FoundationEssentials
internal import Glibc

/// Inspects a fleet again after each interval, and prints the reports first and changes later.
struct Watch: Sendable {
    let fleet: Fleet
    let interval: Duration
    let printer: ReportPrinter

    /// Runs until the task is cancelled or standard output is closed.
    func run() async throws {
        var history = ReportHistory()
        while !Task.isCancelled {
            _ = try await fleet.inspect { try await print($0, after: history.replace(with: $0)) }
            history.endRound()
            await Self.pause(interval)
        }
    }

    private func print(_ report: InspectionReport, after previous: InspectionReport?) async throws {
        guard let previous else { return try await printer.print(report) }
        let changes = ReportChanges.lines(from: previous, to: report)
        if changes.isEmpty { return }
        if printer.printsJSON { return try await printer.print(report) }
        let time = printer.style.dim("\(report.inspectedAt.gregorianText)")
        try await printer.print(changes.map { "\(time) \(report.target): \($0)" }.asLines)
    }

    private static func pause(_ interval: Duration) async {
        let seconds = Double(interval.components.seconds) + Double(interval.components.attoseconds) / 1e18
        await withCheckedContinuation { continuation in
            DispatchQueue.global().asyncAfter(deadline: .now() + seconds) { continuation.resume() }
        }
    }
}

/// The reports of the previous round. Two domains may name the same server, with different reports.
struct ReportHistory {
    private struct Key: Hashable {
        let domain: String?
        let target: String
        /// Which of several equal targets this is, from 0.
        var number = 0
    }

    private var previous: [Key: InspectionReport] = [:]
    private var current: [Key: InspectionReport] = [:]

    /// Stores a report of the current round, and returns the previous round's report about the same target.
    mutating func replace(with report: InspectionReport) -> InspectionReport? {
        var key = Key(domain: report.origin?.domain, target: report.target)
        while current[key] != nil { key.number += 1 }
        current[key] = report
        return previous[key]
    }

    /// Forgets the targets that the round did not contain.
    mutating func endRound() { (previous, current) = (current, [:]) }
}

/// The differences between two reports about the same target.
enum ReportChanges {
    /// Returns one line for each difference. The time of the inspection and the days left always change, so
    /// they are not compared.
    static func lines(from old: InspectionReport, to new: InspectionReport) -> [String] {
        var lines = values(of: old, new)
        lines += new.problems.filter { !old.problems.contains($0) }.map { "new \(name(of: $0)): \($0.message)" }
        lines += old.problems.filter { !new.problems.contains($0) }.map { "resolved: \($0.message)" }
        return lines
    }

    private static func name(of problem: Problem) -> String {
        switch problem.severity {
        case .error: "problem"
        case .warning: "warning"
        }
    }

    private static func values(of old: InspectionReport, _ new: InspectionReport) -> [String] {
        let pairs: [(String, String?, String?)] = [
            ("status", old.status.rawValue, new.status.rawValue),
            ("failure", old.failure?.message, new.failure?.message),
            ("address", old.address, new.address),
            ("certificate", old.certificates.first?.fingerprint, new.certificates.first?.fingerprint),
            ("valid until", end(old), end(new)),
            ("chain", chain(old), chain(new)),
            ("version", old.session?.version, new.session?.version),
            ("cipher suite", old.session?.cipherSuite, new.session?.cipherSuite),
            ("group", old.session?.group, new.session?.group),
            ("found by", old.origin.map { ReportText.text(of: $0).text }, new.origin.map { ReportText.text(of: $0).text }),
            ("DANE", old.dane?.status.rawValue, new.dane?.status.rawValue),
            ("matching TLSA record", old.dane?.matched, new.dane?.matched),
            ("OCSP stapling", old.session?.stapling.rawValue, new.session?.stapling.rawValue),
            ("client certificate", old.clientCertificate?.request.rawValue, new.clientCertificate?.request.rawValue),
            ("use of --cert", old.clientCertificate?.presentation?.rawValue, new.clientCertificate?.presentation?.rawValue),
            ("resumption", old.capabilities?.resumption.rawValue, new.capabilities?.resumption.rawValue),
            ("oldest version", old.capabilities?.oldestVersion, new.capabilities?.oldestVersion),
            ("weakest suite", old.capabilities?.weakestSuiteText, new.capabilities?.weakestSuiteText),
        ]
        return pairs.compactMap { name, old, new in
            old == new ? nil : "\(name) changed from \(old ?? "unknown") to \(new ?? "unknown")"
        }
    }

    private static func end(_ report: InspectionReport) -> String? {
        report.certificates.first?.notAfter?.gregorianText
    }

    private static func chain(_ report: InspectionReport) -> String? {
        report.certificates.isEmpty ? nil : report.certificates.map(\.displayName).joined(separator: " < ")
    }
}

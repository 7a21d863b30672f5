internal import AsyncSockets

/// Inspects many targets at the same time. A target that fails does not stop the inspection of the others.
struct Fleet: Sendable {
    let targets: [InspectionTarget]
    let choices: InspectionChoices
    let parallel: Int
    let passphraseFile: String?

    /// Inspects all targets, passes the reports to `body` in the order of the targets, and returns the most
    /// serious status.
    func inspect(_ body: (InspectionReport) async throws -> Void) async throws -> InspectionReport.Status {
        var worst = InspectionReport.Status.ok
        try await withThrowingTaskGroup(of: (Int, InspectionReport).self) { group in
            var (next, printed) = (0, 0)
            var waiting: [Int: InspectionReport] = [:]
            func start() {
                guard next < targets.count else { return }
                let (index, target) = (next, targets[next])
                group.addTask { (index, try await inspect(target)) }
                next += 1
            }
            for _ in 0..<parallel { start() }
            while let (index, report) = try await group.next() {
                start()
                waiting[index] = report
                while let report = waiting.removeValue(forKey: printed) {
                    if report.status.severity > worst.severity { worst = report.status }
                    try await body(report)
                    printed += 1
                }
            }
        }
        return worst
    }

    private func inspect(_ target: InspectionTarget) async throws -> InspectionReport {
        switch target {
        case .server(let server): try await ServerInspector.inspect(server, choices)
        case .file(let path): FileInspector(path: path, days: choices.days, passphraseFile: passphraseFile).inspect()
        }
    }
}

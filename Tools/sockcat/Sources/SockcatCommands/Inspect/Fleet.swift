internal import AsyncSockets

/// Inspects many targets at the same time. A target that fails does not stop the inspection of the others.
struct Fleet: Sendable {
    let targets: [InspectionTarget]
    /// Domains. Their servers are looked up for each inspection.
    var domains: [ServiceDomain] = []
    let choices: InspectionChoices
    let parallel: Int
    let passphraseFile: String?

    /// Inspects all targets, passes the reports to `body` in the order of the targets, and returns the most
    /// serious status.
    func inspect(_ body: (InspectionReport) async throws -> Void) async throws -> InspectionReport.Status {
        let targets = try await allTargets()
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

    private func allTargets() async throws -> [InspectionTarget] {
        var all = targets
        for domain in domains {
            do {
                all += try await Resolver.within(choices.timeout) { try await domain.servers(.system) }
            } catch let error where error is CancellationError {
                throw error
            } catch {
                all.append(.unresolved("\(domain)", Failure(error)))
            }
        }
        return all
    }

    private func inspect(_ target: InspectionTarget) async throws -> InspectionReport {
        switch target {
        case .server(let server): try await ServerInspector.inspect(server, choices)
        case .file(let path): FileInspector(path: path, choices: choices, passphraseFile: passphraseFile).inspect()
        case .unresolved(let name, let failure): ServerInspector.report(failure, of: name)
        }
    }
}

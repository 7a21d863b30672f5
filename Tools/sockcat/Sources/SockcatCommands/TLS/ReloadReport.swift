internal import Synchronization

/// Reports that changed certificate files were read. A failure is reported once, although the files are tried
/// again and again.
final class ReloadReport: Sendable {
    private let reporter: Reporter
    private let lastFailure = Mutex<String?>(nil)

    init(_ reporter: Reporter) {
        self.reporter = reporter
    }

    func succeeded() {
        lastFailure.withLock { $0 = nil }
        reporter.detail("the certificate was reloaded")
    }

    func failed(_ error: any Error) {
        let message = Failure(error).message
        let isNew = lastFailure.withLock { last in
            defer { last = message }
            return last != message
        }
        if isNew { reporter.note("the changed certificate cannot be used: \(message)") }
    }
}

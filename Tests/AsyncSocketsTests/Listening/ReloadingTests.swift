import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// When a listener reloads its settings.
@Suite(.timeLimit(.patient)) struct ReloadingTests {
    private struct Unusable: Error {}

    /// Returns valid or invalid settings, and counts the calls.
    private final class Source: Sendable {
        private let state: Locked<(isUsable: Bool, count: Int, usableCount: Int)>

        init(isUsable: Bool) { state = Locked((isUsable, 0, 0)) }

        var count: Int { state.withLock { $0.count } }
        /// The number of calls that returned valid settings.
        var usableCount: Int { state.withLock { $0.usableCount } }

        func makeUsable(_ isUsable: Bool) { state.withLock { $0.isUsable = isUsable } }

        func settings() throws -> TLSServerSettings {
            let isUsable = state.withLock { state in
                state.count += 1
                if state.isUsable { state.usableCount += 1 }
                return state.isUsable
            }
            guard isUsable else { throw Unusable() }
            return try TestCertificates.server()
        }
    }

    /// Invalid settings are retried without a change of the files, and reported once. Valid settings are
    /// reloaded only after a change.
    @Test func settingsAreReadAfterAChangeAndUntilTheyAreUsable() async throws {
        let folder = try TemporaryFolder()
        try Data("1".utf8).write(to: folder.url("file"), options: .atomic)
        let source = Source(isUsable: false)
        let errors = Findings<String>()
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: TestCertificates.server(),
            configure: { $0.logger = LogRecorder.logger(of: "reloading") })
        let path = folder.path("file")
        let watching = Task {
            try await listener.reloadTLS(
                from: [path], every: .milliseconds(1), onError: { errors.add("\(type(of: $0))") }
            ) { try source.settings() }
        }
        try await eventually("it is tried again") { source.count >= 5 }
        #expect(errors.all == ["Unusable"])
        source.makeUsable(true)
        try await eventually("they are there") { source.usableCount == 1 }
        let count = source.count
        // Nothing has changed, so nothing is loaded for many intervals.
        try await passes(.milliseconds(50))
        #expect(source.count == count)
        for round in 2...3 {
            source.makeUsable(round == 2)
            try Data(String(repeating: "x", count: round).utf8).write(to: folder.url("file"), options: .atomic)
            try await eventually("the change is seen") { source.count > count + round - 2 }
        }
        try await eventually("it is tried again") { source.count >= count + 5 }
        #expect(errors.all == ["Unusable", "Unusable"])
        #expect(LogRecorder.warnings(of: "reloading").map { $0.metadata["error"] } == ["Unusable()", "Unusable()"])
        watching.cancel()
        #expect(await watching.outcome == .cancelled)
        listener.stopAccepting()
    }

    /// The settings may have been created from the old file.
    @Test func aFileThatChangesWhileItIsReadIsReadAgain() async throws {
        let folder = try TemporaryFolder()
        defer { withExtendedLifetime(folder) {} }
        let file = folder.url("file")
        try Data("1".utf8).write(to: file, options: .atomic)
        let source = Source(isUsable: true)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        let watching = Task {
            try await listener.reloadTLS(from: [file.path], every: .milliseconds(1)) {
                let settings = try source.settings()
                if source.count == 1 { try Data("22".utf8).write(to: file, options: .atomic) }
                return settings
            }
        }
        try await eventually("it is read again") { source.count >= 2 }
        // And not again for many intervals.
        try await passes(.milliseconds(50))
        #expect(source.count == 2)
        watching.cancel()
        #expect(await watching.outcome == .cancelled)
        listener.stopAccepting()
    }

    private func passes(_ time: Duration) async throws {
        let start = ContinuousClock.now
        try await eventually("time passes") { start.duration(to: .now) > time }
    }
}

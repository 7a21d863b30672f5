internal import SocketTestSupport
package import Testing

/// Runs a test, or every test of a suite, on two dedicated threads. Use it for tests that block a thread or
/// compute for seconds: Swift's default executor has one thread per processor, so such a test would delay all
/// others.
package struct OwnThreads: SuiteTrait, TestTrait, TestScoping {
    package var isRecursive: Bool { true }

    package func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withTaskExecutorPreference(TestThreads()) { try await function() }
    }
}

extension Trait where Self == OwnThreads {
    package static var ownThreads: Self { OwnThreads() }
}

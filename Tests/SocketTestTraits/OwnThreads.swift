internal import SocketTestSupport
package import Testing

/// Runs a test, or each test of a suite, on two threads of its own. It is for tests that block, and for tests
/// that compute for seconds: Swift has one thread for each processor, which all other tests wait for.
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

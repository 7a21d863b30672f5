internal import SocketTestSupport
package import Testing

/// Runs each test of a suite on two threads of its own: those that call what blocks, and those that compute
/// for seconds without a pause. Swift has one thread for each processor, and all other tests wait for these.
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

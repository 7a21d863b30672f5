internal import Dispatch
internal import SocketBuffers

/// Runs the body in a task and blocks the calling thread until it has returned.
func waitForTask(_ body: @escaping @Sendable () async throws -> Void) throws {
    let outcome = Locked<Result<Void, any Error>?>(nil)
    let done = DispatchSemaphore(value: 0)
    Task {
        do {
            try await body()
            outcome.withLock { $0 = .success(()) }
        } catch {
            outcome.withLock { $0 = .failure(error) }
        }
        done.signal()
    }
    done.wait()
    try outcome.withLock { $0 }?.get()
}

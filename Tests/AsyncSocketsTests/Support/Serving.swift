import SocketBuffers
import SocketTestSupport

@testable import AsyncSockets

/// Runs a listener during `test`, and then shuts it down. Remaining connections are cut.
func serving<Result: Sendable>(
    _ listener: SocketListener, executor: ConnectionExecutor? = .eventLoop,
    onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
    _ body: @escaping @Sendable (AsyncSocket) async throws -> Void,
    _ test: (Task<Void, any Error>) async throws -> Result
) async throws -> Result {
    // Runs on a loop if the connections do, because tests with blocking calls occupy Swift's threads.
    let running = Task(executorPreference: executor.map { $0.taskExecutor(for: listener.reception.loop) }) {
        try await listener.run(executor: executor, onError: onError, body)
    }
    do {
        let result = try await test(running)
        await listener.close(timeout: .zero)
        try await running.value
        return result
    } catch {
        running.cancel()
        throw error
    }
}

extension AsyncSocket {
    /// Echoes everything until the end of the stream.
    func echo() async throws {
        for try await bytes in chunks { try await write(bytes) }
    }
}

extension TLSSettings where Side == TLSRole.Client {
    /// A client that trusts the authority of the tests.
    static func ofTests() throws -> TLSClientSettings { try TestCertificates.client() }
}

/// Collects results from several tasks in order.
final class Findings<Value: Sendable>: Sendable {
    private let found = Locked<[Value]>([])

    func add(_ value: Value) {
        found.withLock { $0.append(value) }
    }

    var all: [Value] { found.withLock { $0 } }
}

/// A barrier at which tasks wait until all of them have arrived.
final class Gate: Sendable {
    private let state: Locked<(missing: Int, waiting: [CheckedContinuation<Void, Never>])>

    init(_ count: Int) {
        state = Locked((count, []))
    }

    func pass() async {
        await withCheckedContinuation { continuation in
            let released = state.withLock { state in
                state.missing -= 1
                state.waiting.append(continuation)
                guard state.missing <= 0 else { return [CheckedContinuation<Void, Never>]() }
                defer { state.waiting = [] }
                return state.waiting
            }
            for waiting in released { waiting.resume() }
        }
    }
}

internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import Synchronization

/// Completes when one side of the connection has ended. Several tasks can wait for it.
final class Ending: Sendable {
    private struct State {
        var result: Result<Void, AsyncSocketError>?
        var waiters: [CheckedContinuation<AsyncSocketError?, Never>] = []
    }

    private let state = Mutex(State())

    func set(_ error: AsyncSocketError?) {
        let waiters = state.withLock { state in
            state.result = error.map { .failure($0) } ?? .success(())
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume(returning: error) }
    }

    /// Waits for the end of the connection and returns its error. Every operation in the demo has a deadline,
    /// so this always returns.
    func wait() async -> AsyncSocketError? {
        await withCheckedContinuation { continuation in
            let result = state.withLock { state in
                if state.result == nil { state.waiters.append(continuation) }
                return state.result
            }
            switch result {
            case .success: continuation.resume(returning: nil)
            case .failure(let error): continuation.resume(returning: error)
            case nil: break
            }
        }
    }
}

extension TLSSession {
    var summary: String {
        [protocolVersion.description, cipherSuite, group ?? ""].filter { !$0.isEmpty }.joined(separator: ", ")
    }
}

extension DispatchTime {
    var millisecondsAgo: String {
        String(format: "%.2f ms", Double(DispatchTime.now().uptimeNanoseconds - uptimeNanoseconds) / 1_000_000)
    }
}

internal import SocketBuffers

typealias SocketQueue = ReadyQueue<AsyncSocket>

/// A queue of sockets that are ready, and of the tasks waiting for them.
final class ReadyQueue<Socket: Sendable>: Sendable {
    private typealias Waiter = UnsafeContinuation<Result<Socket?, CancellationError>, Never>

    private struct State {
        /// Whether accepting has stopped.
        var isStopped = false
        /// Whether no more sockets will become ready.
        var isEnded = false
        /// An array is fast enough, because it holds only a few elements.
        var ready: [Socket] = []
        /// The number of connections that need no preparation and will be ready shortly.
        var expectedCount = 0
        var lastNumber = 0
        var waiting: [(number: Int, waiter: Waiter)] = []
        /// The numbers of tasks that were cancelled before they started waiting.
        var cancelled: Set<Int> = []
        /// The task that is suspended in `room()`.
        var accepting: UnsafeContinuation<Void, Never>?

        var hasRoom: Bool { isStopped || ready.count + expectedCount < ReadyQueue.limit }
    }

    private static var limit: Int { 16 }
    private let state = Locked(State())

    /// Counts `count` connections as ready before they are, because they need no preparation. Call
    /// `noteExpected(-1)` for each connection once it is ready or has failed.
    func noteExpected(_ count: Int) {
        state.withLock { $0.expectedCount += count }
        makeRoom()
    }

    func put(_ socket: Socket) {
        let waiter = state.withLock { state -> Waiter? in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst().waiter }
            state.ready.append(socket)
            return nil
        }
        waiter?.resume(returning: .success(socket))
    }

    /// Returns when there is room for another connection, or when no more connections will be accepted.
    nonisolated(nonsending) func room() async {
        await withUnsafeContinuation { continuation in
            let waits = state.withLock { state in
                if !state.hasRoom { state.accepting = continuation }
                return !state.hasRoom
            }
            if !waits { continuation.resume() }
        }
    }

    func stop() {
        let accepting = state.withLock { state in
            state.isStopped = true
            return state.accepting.take()
        }
        accepting?.resume()
    }

    func end() {
        let waiting = state.withLock { state in
            state.isEnded = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for (_, waiter) in waiting { waiter.resume(returning: .success(nil)) }
    }

    var isAwaited: Bool { state.withLock { !$0.waiting.isEmpty } }

    // MARK: - Taking

    func next() async throws(CancellationError) -> Socket? {
        if Task.isCancelled { throw CancellationError() }
        let (answer, number) = state.withLock { state in
            state.lastNumber += 1
            return (Self.take(&state), state.lastNumber)
        }
        if let answer {
            makeRoom()
            return answer
        }
        let later = await withTaskCancellationHandler {
            await withUnsafeContinuation { wait(with: $0, number) }
        } onCancel: {
            cancel(number)
        }
        state.withLock { _ = $0.cancelled.remove(number) }
        return try later.get()
    }

    /// Returns `nil` if the caller has to wait.
    private static func take(_ state: inout State) -> Socket?? {
        if !state.ready.isEmpty { return .some(state.ready.removeFirst()) }
        return state.isEnded ? .some(nil) : nil
    }

    private func wait(with waiter: Waiter, _ number: Int) {
        let answer = state.withLock { state -> Result<Socket?, CancellationError>? in
            if state.cancelled.contains(number) { return .failure(CancellationError()) }
            if let answer = Self.take(&state) { return .success(answer) }
            state.waiting.append((number, waiter))
            return nil
        }
        guard let answer else { return }
        makeRoom()
        waiter.resume(returning: answer)
    }

    private func makeRoom() {
        let accepting = state.withLock { $0.hasRoom ? $0.accepting.take() : nil }
        accepting?.resume()
    }

    private func cancel(_ number: Int) {
        let waiter = state.withLock { state -> Waiter? in
            guard let index = state.waiting.firstIndex(where: { $0.number == number }) else {
                state.cancelled.insert(number)
                return nil
            }
            return state.waiting.remove(at: index).waiter
        }
        waiter?.resume(returning: .failure(CancellationError()))
    }
}

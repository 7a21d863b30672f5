internal import SocketBuffers

/// Sockets that are ready, and the tasks that wait for one.
typealias SocketQueue = ReadyQueue<AsyncSocket>

/// Sockets of one kind that are ready, and the tasks that wait for one.
final class ReadyQueue<Socket: Sendable>: Sendable {
    private typealias Waiter = UnsafeContinuation<Result<Socket?, CancellationError>, Never>

    private struct State {
        /// No more will be accepted.
        var isStopped = false
        /// No more will be ready.
        var isEnded = false
        /// Few, so that taking the first one is cheap.
        var ready: [Socket] = []
        /// Connections that will be ready at once.
        var expectedCount = 0
        var lastNumber = 0
        var waiting: [(number: Int, waiter: Waiter)] = []
        /// Those that were cancelled before they waited.
        var cancelled: Set<Int> = []
        /// The waiter in `room()`.
        var accepting: UnsafeContinuation<Void, Never>?

        var hasRoom: Bool { isStopped || ready.count + expectedCount < ReadyQueue.limit }
    }

    private static var limit: Int { 16 }
    private let state = Locked(State())

    /// So many connections will be ready at once: they count as ready from now on. `noteExpected(-1)` for
    /// each when it is, or has failed.
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

    /// Returns when another socket may be accepted, or none will be.
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

    /// True while someone waits for a socket.
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

    /// Nil when one has to wait.
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

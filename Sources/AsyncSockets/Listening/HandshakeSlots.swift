internal import SocketBuffers

/// Limits the simultaneous handshakes of a listener. Waiting tasks enter in order of arrival.
final class HandshakeSlots: Sendable {
    private struct State {
        var limit: Int
        /// Whether the limit is lifted.
        var isOpen = false
        var taken = 0
        var waiting: [UnsafeContinuation<Void, Never>] = []
        /// How many elements of `waiting` have been resumed but not removed.
        var served = 0
    }

    private let state: Locked<State>

    init(limit: Int) {
        state = Locked(State(limit: limit))
    }

    var limit: Int {
        get { state.withLock { $0.limit } }
        set {
            let next = state.withLock { state in
                state.limit = newValue
                return Self.admit(&state)
            }
            for waiter in next { waiter.resume() }
        }
    }

    /// Lifts the limit once no more connections are accepted, so that no task keeps waiting.
    func open() {
        let next = state.withLock { state in
            state.isOpen = true
            return Self.admit(&state)
        }
        for waiter in next { waiter.resume() }
    }

    var takenCount: Int { state.withLock { $0.taken } }

    var waitingCount: Int { state.withLock { $0.waiting.count - $0.served } }

    /// The number of stored continuations, including continuations that have already been resumed.
    var storedCount: Int { state.withLock { $0.waiting.count } }

    /// Takes a slot as soon as one is free. Cancelled tasks keep their place in the queue, because the tasks
    /// ahead of them are also cancelled and release their slots.
    nonisolated(nonsending) func enter() async {
        await withUnsafeContinuation { continuation in
            let isFree = state.withLock { state in
                guard state.isOpen || state.taken < state.limit else {
                    state.waiting.append(continuation)
                    return false
                }
                state.taken += 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    /// Releases the slot and passes it to the next waiting task.
    func leave() {
        let next = state.withLock { state in
            state.taken -= 1
            return Self.admit(&state)
        }
        for waiter in next { waiter.resume() }
    }

    /// Returns when a slot is free and no task is waiting for one.
    nonisolated(nonsending) func room() async {
        await enter()
        leave()
    }

    private static func admit(_ state: inout State) -> [UnsafeContinuation<Void, Never>] {
        let room = state.isOpen ? .max : state.limit - state.taken
        let count = max(0, min(room, state.waiting.count - state.served))
        guard count > 0 else { return [] }
        let next = Array(state.waiting[state.served..<state.served + count])
        state.taken += count
        state.served += count
        // Removing each element from the front would move all later elements. Under a steady load the array
        // never becomes empty, so resumed elements are also removed once they fill half the array.
        if state.served == state.waiting.count {
            (state.waiting, state.served) = ([], 0)
        } else if state.served >= 32, state.served * 2 >= state.waiting.count {
            state.waiting.removeFirst(state.served)
            state.served = 0
        }
        return next
    }
}

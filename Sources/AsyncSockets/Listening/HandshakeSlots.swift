internal import SocketBuffers

/// Places for the handshakes of a listener, which are served in the order in which they ask.
final class HandshakeSlots: Sendable {
    private struct State {
        /// As it was set.
        var limit: Int
        /// It counts no longer.
        var isOpen = false
        var taken = 0
        var waiting: [UnsafeContinuation<Void, Never>] = []
        /// How many of `waiting` have been served.
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
                state.limit = max(1, newValue)
                return Self.admit(&state)
            }
            for waiter in next { waiter.resume() }
        }
    }

    /// Nothing more is accepted: who waits need not wait any longer.
    func open() {
        let next = state.withLock { state in
            state.isOpen = true
            return Self.admit(&state)
        }
        for waiter in next { waiter.resume() }
    }

    /// How many places are taken.
    var takenCount: Int { state.withLock { $0.taken } }

    /// How many wait for one.
    var waitingCount: Int { state.withLock { $0.waiting.count - $0.served } }

    /// How many take memory, with those that have been served.
    var storedCount: Int { state.withLock { $0.waiting.count } }

    /// Takes a place, as soon as there is one. A cancelled task waits too: those before it are cancelled as
    /// well, and leave.
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

    /// Gives the place to the next one.
    func leave() {
        let next = state.withLock { state in
            state.taken -= 1
            return Self.admit(&state)
        }
        for waiter in next { waiter.resume() }
    }

    /// Returns when nothing waits.
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
        // Removing each at the front would take time for all behind it. Under a steady load some always wait,
        // so those who were served are not removed only with the last one.
        if state.served == state.waiting.count {
            (state.waiting, state.served) = ([], 0)
        } else if state.served >= 32, state.served * 2 >= state.waiting.count {
            state.waiting.removeFirst(state.served)
            state.served = 0
        }
        return next
    }
}

// Rules of the quota:
//  1. A connection counts from before it is accepted until its descriptor is closed, whoever has it
//     meanwhile: its `Place` goes with the descriptor.
//  2. A listener that gets no place stops accepting; connections wait in the backlog. It is woken when a
//     place becomes free, and by nothing else: what the kernel reports meanwhile costs one look at the quota.
//  3. Lowering the limit closes nothing.

internal import SocketBuffers

/// How many accepted connections a socket may have open at a time, on all its listening descriptors together.
package final class AcceptQuota: Sendable {
    private struct State {
        var limit: Int?
        var open = 0
        var waiting: Set<LoopRegistration> = []
        var refusals = 0

        var hasPlace: Bool { limit.map { open < $0 } ?? true }
    }

    private let state: Locked<State>
    private let loop: EventLoop

    /// - Parameters:
    ///   - limit: nil: no limit.
    ///   - loop: Where the listeners are that are to be woken.
    package init(limit: Int? = nil, loop: EventLoop) {
        state = Locked(State(limit: limit))
        self.loop = loop
    }

    /// The permission to have one connection open; it is given back when it goes.
    package struct Place: ~Copyable, Sendable {
        private let quota: AcceptQuota

        fileprivate init(in quota: AcceptQuota) {
            self.quota = quota
        }

        deinit { quota.giveBack() }
    }

    /// A place for one more connection. When there is none, `waiter` gets a turn on its loop once there is.
    func take(for waiter: LoopRegistration) -> Place? {
        let isTaken = state.withLock { state in
            guard state.hasPlace else {
                state.waiting.insert(waiter)
                state.refusals += 1
                return false
            }
            state.open += 1
            return true
        }
        return isTaken ? Place(in: self) : nil
    }

    private func giveBack() {
        wake {
            $0.open -= 1
        }
    }

    /// Counts from the next connection on; a listener that waits goes on when there is room now.
    package func setLimit(_ limit: Int?) {
        wake { $0.limit = limit }
    }

    private func wake(after change: (inout State) -> Void) {
        let woken = state.withLock { state -> Set<LoopRegistration> in
            change(&state)
            guard state.hasPlace else { return [] }
            defer { state.waiting = [] }
            return state.waiting
        }
        for waiter in woken { loop.resume(waiter) }
    }

    /// The connections that are open now.
    package var openCount: Int { state.withLock { $0.open } }

    /// How often a listener has asked in vain; it grows by one at most for each connection that comes and
    /// each that ends.
    package var refusalCount: Int { state.withLock { $0.refusals } }
}

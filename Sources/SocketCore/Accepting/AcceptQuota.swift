// Rules of the quota:
//  1. A connection counts from before `accept4` until its descriptor is closed, whoever has it meanwhile: its
//     permit goes to the descriptor, which gives it back.
//  2. A listener that gets no permit stops accepting; connections wait in the backlog. A permit that comes
//     back wakes it, and nothing else does: what the kernel reports meanwhile costs one look at the quota.
//  3. Lowering the limit closes nothing.

internal import SocketBuffers

/// How many accepted connections a socket may have open at a time, on all its listening descriptors together.
package final class AcceptQuota: Sendable {
    private struct State {
        var limit: Int?
        var open = 0
        var waiting: Set<LoopRegistration> = []
        var refusals = 0

        var hasRoom: Bool { limit.map { open < $0 } ?? true }
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

    /// A permit for one more connection. When the quota has none, `waiter` gets a turn on its loop once it has.
    func takePermit(for waiter: LoopRegistration) -> AcceptPermit? {
        let isTaken = state.withLock { state in
            guard state.hasRoom else {
                state.waiting.insert(waiter)
                state.refusals += 1
                return false
            }
            state.open += 1
            return true
        }
        return isTaken ? AcceptPermit(of: self) : nil
    }

    fileprivate func returnPermit() {
        wake { $0.open -= 1 }
    }

    /// Counts from the next connection on; a listener that waits goes on when there is room now.
    package func setLimit(_ limit: Int?) {
        wake { $0.limit = limit }
    }

    private func wake(after change: (inout State) -> Void) {
        let woken = state.withLock { state -> Set<LoopRegistration> in
            change(&state)
            guard state.hasRoom, !state.waiting.isEmpty else { return [] }
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

extension AcceptQuota: DescriptorObserver {
    func descriptorDidClose() { returnPermit() }
}

/// The permission to have one more connection open. It goes back to its quota by itself, unless it is handed
/// over to a descriptor.
struct AcceptPermit: ~Copyable {
    private var quota: AcceptQuota?

    fileprivate init(of quota: AcceptQuota) {
        self.quota = quota
    }

    deinit { quota?.returnPermit() }

    /// Has `descriptor` give the permit back when it is closed.
    consuming func handOver(to descriptor: SocketDescriptor) {
        descriptor.observer = quota.take()
    }
}

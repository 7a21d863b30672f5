// Rules of the quota:
//  1. A connection counts from before `accept4` until its descriptor is closed, in all the hands that it goes
//     through: its permit goes with the descriptor, whose end returns it.
//  2. A listener without a permit stops accepting, and connections wait in the kernel's backlog. Only a
//     returned permit or a higher limit wakes it; an event of the kernel costs one look at the quota.
//  3. Lowering the limit closes nothing.
//  4. With `aheadLimit`, at most so many accepted connections wait to be taken: see `noteTaken(_:)`.

internal import SocketBuffers

/// How many accepted connections a socket may have open at a time, on all its listening descriptors together.
package final class AcceptQuota: Sendable {
    private struct State {
        var limit: Int?
        var aheadLimit: Int?
        var open = 0
        /// Accepted, and not taken yet. Counted without a limit too.
        var ahead = 0
        var waiting: Set<LoopRegistration> = []
        var refusals = 0

        var hasRoom: Bool {
            if let limit, open >= limit { return false }
            if let aheadLimit, ahead >= aheadLimit { return false }
            return true
        }
    }

    private let state: Locked<State>
    private let loop: EventLoop

    /// - Parameters:
    ///   - limit: nil: no limit.
    ///   - aheadLimit: The most connections that may wait to be taken; nil: no limit, and nothing calls
    ///     `noteTaken(_:)`.
    ///   - loop: The loop of the listeners.
    package init(limit: Int? = nil, aheadLimit: Int? = nil, loop: EventLoop) {
        state = Locked(State(limit: limit, aheadLimit: aheadLimit))
        self.loop = loop
    }

    /// A permit for one more connection. Without one, `waiter` gets a turn on the loop when there is one.
    ///
    /// - Parameter beginWait: Called when there is no permit, unless `waiter` waits already.
    func takePermit(for waiter: LoopRegistration, beginWait: () -> Void = {}) -> AcceptPermit? {
        let (isTaken, isNew) = state.withLock { state in
            guard state.hasRoom else {
                state.refusals += 1
                return (false, state.waiting.insert(waiter).inserted)
            }
            state.open += 1
            state.ahead += 1
            return (true, false)
        }
        if isNew { beginWait() }
        return isTaken ? AcceptPermit(of: self) : nil
    }

    fileprivate func returnPermit() {
        wake { $0.open -= 1 }
    }

    /// There was no connection to accept.
    fileprivate func returnUnusedPermit() {
        wake { state in
            state.open -= 1
            state.ahead -= 1
        }
    }

    /// Accepted connections have found someone to serve them.
    package func noteTaken(_ count: Int) {
        wake { $0.ahead -= count }
    }

    /// Takes effect with the next connection. A listener that waits goes on if there is room now.
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

    /// How many connections are open.
    package var openCount: Int { state.withLock { $0.open } }

    /// How often a listener got no permit. It grows by at most one for each connection that comes, and for
    /// each that ends.
    package var refusalCount: Int { state.withLock { $0.refusals } }
}

extension AcceptQuota: DescriptorObserver {
    func descriptorDidClose() { returnPermit() }
}

/// The permission to accept one more connection. Its end returns it to the quota, unless it was handed over
/// to a descriptor.
struct AcceptPermit: ~Copyable {
    private var quota: AcceptQuota?

    fileprivate init(of quota: AcceptQuota) {
        self.quota = quota
    }

    deinit { quota?.returnUnusedPermit() }

    /// From here on the end of `descriptor` returns the permit.
    consuming func handOver(to descriptor: SocketDescriptor) {
        descriptor.observer = quota.take()
    }
}

// Rules of the quota:
//  1. A connection holds a permit from before `accept4` until its descriptor is closed or relinquished. The
//     permit is attached to the descriptor itself, whichever object owns the descriptor.
//  2. A listener that gets no permit stops accepting, and connections stay in the kernel's backlog. The
//     listener resumes when permits are available again: after a permit is returned, connections are taken,
//     or a limit is raised. Until then, an event from the kernel only causes another check of the quota.
//  3. Lowering the limit closes no connections.
//  4. `aheadLimit` bounds the number of accepted connections that have not been taken yet (see
//     `noteTaken(_:)`).

internal import SocketBuffers

/// A limit on the accepted connections that a socket may have open at a time, across all its listening
/// descriptors.
package final class AcceptQuota: Sendable {
    private struct State {
        var limit: Int?
        var aheadLimit: Int?
        var open = 0
        /// The number of accepted connections that have not been taken yet. Counted even if there is no
        /// limit.
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
    private let loop: SocketEventLoop

    /// - Parameters:
    ///   - limit: The maximum number of open connections, or `nil` for no limit.
    ///   - aheadLimit: The maximum number of connections that may be queued before they are taken. With
    ///     `nil` there is no limit, and `noteTaken(_:)` is not called.
    ///   - loop: The loop of the listeners.
    package init(limit: Int? = nil, aheadLimit: Int? = nil, loop: SocketEventLoop) {
        state = Locked(State(limit: limit, aheadLimit: aheadLimit))
        self.loop = loop
    }

    /// Takes a permit for one more connection. If no permit is available, returns `nil`, and resumes
    /// `waiter` on the loop when a permit becomes available.
    ///
    /// - Parameter beginWait: Called if no permit is available, unless `waiter` is already queued.
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

    /// Called when a listener has closed, which may be waiting for a permit.
    func endWait(of waiter: LoopRegistration) {
        state.withLock { _ = $0.waiting.remove(waiter) }
    }

    fileprivate func returnPermit() {
        wake { $0.open -= 1 }
    }

    /// Called if no connection was accepted.
    fileprivate func returnUnusedPermit() {
        wake { state in
            state.open -= 1
            state.ahead -= 1
        }
    }

    /// Records that `count` queued connections were taken by the server or discarded.
    package func noteTaken(_ count: Int) {
        wake { $0.ahead -= count }
    }

    /// Changes the limit for future connections. Listeners that are out of permits resume if the new limit
    /// allows it.
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

    /// The limit on open connections, if it is reached.
    package var reachedLimit: Int? {
        state.withLock { state in state.limit.flatMap { state.open >= $0 ? $0 : nil } }
    }

    package var openCount: Int { state.withLock { $0.open } }

    /// How often a listener was refused a permit. This grows by at most one for each new connection and for
    /// each connection that closes.
    package var refusalCount: Int { state.withLock { $0.refusals } }
}

extension AcceptQuota: DescriptorObserver {
    func descriptorDidClose() { returnPermit() }
}

/// Permission to accept one more connection. When destroyed, it is returned to the quota unless it was
/// handed over to a descriptor.
struct AcceptPermit: ~Copyable {
    private var quota: AcceptQuota?

    fileprivate init(of quota: AcceptQuota) {
        self.quota = quota
    }

    deinit { quota?.returnUnusedPermit() }

    /// Attaches the permit to `descriptor`, which returns it on close.
    consuming func handOver(to descriptor: SocketDescriptor) {
        descriptor.observer = quota.take()
    }
}

// Rules of the quota:
//  1. A connection holds a permit from before `accept4` until its descriptor is closed or relinquished. The
//     permit is attached to the descriptor itself, whichever object owns the descriptor.
//  2. A listener that gets no permit stops accepting, and connections stay in the kernel's backlog. The
//     listener resumes when permits are available again: after a permit is returned, connections are taken,
//     or a limit is raised. Until then, an event from the kernel only causes another check of the quota.
//  3. Lowering the limit closes no connections.
//  4. A source has at most `limitPerSource` connections. Further connections from it, and those over the rate
//     limit, are closed when they are accepted, because the kernel's backlog cannot be reordered. A proxy's
//     connection is charged to its client later (`charge(to:)`).
//  5. At the limit, a new connection replaces the oldest unproven connection of the source with the most
//     unproven connections. Connections accepted while the listener is at most half full are not replaced.
//     The quota chooses a connection, and its owner then decides whether it is unproven. One connection is
//     replaced at a time.
//  6. `aheadLimit` bounds the number of accepted connections that have not been taken yet (see
//     `noteTaken(_:)`).

internal import SocketBuffers

/// A limit on the accepted connections that a socket may have open at a time, across all its listening
/// descriptors.
package final class AcceptQuota: Sendable {
    private struct State {
        var limit: Int?
        var limitPerSource: Int?
        var aheadLimit: Int?
        var open = 0
        /// The open connections of each source, with a list of the connections that may be unproven.
        var sources = SourceGroups<ConnectionPlace>()
        var limiter: SourceRateLimiter?
        var prefix = SourcePrefix()
        /// The connection that is being replaced.
        var leaving: ConnectionPlace?
        var counts = AcceptCounts()
        /// The number of accepted connections that have not been taken yet. Counted even if there is no
        /// limit.
        var ahead = 0
        var waiting: Set<LoopRegistration> = []
        var refusals = 0

        var effectiveLimitPerSource: Int { limitPerSource ?? limit.map(SourceKey.share) ?? .max }

        var hasRoom: Bool {
            if let limit, open >= limit { return false }
            if let aheadLimit, ahead >= aheadLimit { return false }
            return true
        }
    }

    private let state: Locked<State>
    private let loop: SocketEventLoop
    private let isExempt: @Sendable (SocketEndpoint) -> Bool

    /// - Parameters:
    ///   - limit: The maximum number of open connections, or `nil` for no limit.
    ///   - limitPerSource: The maximum number of open connections from one source. `nil` is four fifths of
    ///     `limit`.
    ///   - aheadLimit: The maximum number of connections that may be queued before they are taken. With
    ///     `nil` there is no limit, and `noteTaken(_:)` is not called.
    ///   - loop: The loop of the listeners.
    ///   - isExempt: Returns whether the connections of a peer are charged to their clients later.
    package init(
        limit: Int? = nil, limitPerSource: Int? = nil, aheadLimit: Int? = nil, loop: SocketEventLoop,
        isExempt: @escaping @Sendable (SocketEndpoint) -> Bool = { _ in false }
    ) {
        state = Locked(State(limit: limit, limitPerSource: limitPerSource, aheadLimit: aheadLimit))
        (self.loop, self.isExempt) = (loop, isExempt)
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
        if isTaken { return AcceptPermit(of: self) }
        if isNew { beginWait() }
        return nil
    }

    /// When a listener that has no permit for a new connection calls `makeRoom()` again.
    enum Wait {
        /// When the quota resumes the listener.
        case untilResumed
        /// At this time, or when the quota resumes the listener.
        case until(Deadline)
    }

    /// Starts to replace an unproven connection if the limit is reached. Called if no permit is available.
    func makeRoom() -> Wait {
        for _ in 0..<Self.attempts {
            let candidate = state.withLock { state -> SourceGroups<ConnectionPlace>.Candidate in
                // If the limit has been lowered, closing one connection would not free a permit.
                guard state.limit == state.open, state.leaving == nil else { return .none }
                let candidate = state.sources.candidate(at: .now)
                if case .member(let place) = candidate { state.leaving = place }
                return candidate
            }
            switch candidate {
            case .none: return .untilResumed
            case .later(let time): return .until(time)
            case .member(let place): if giveWay(place) { return .untilResumed }
            }
        }
        return .until(.now)
    }

    private func giveWay(_ place: ConnectionPlace) -> Bool {
        let owner = state.withLock { place.endTrial(&$0.sources) }
        if owner?.giveWay() ?? false { return true }
        state.withLock { noteStay(of: place, &$0) }
        return false
    }

    private func noteStay(of place: ConnectionPlace, _ state: inout State) {
        if state.leaving === place { state.leaving = nil }
    }

    /// How many connections one call of `makeRoom()` examines.
    private static var attempts: Int { 64 }

    /// Called when a listener has closed, which may be waiting for a permit.
    func endWait(of waiter: LoopRegistration) {
        state.withLock { _ = $0.waiting.remove(waiter) }
    }

    /// Returns the object that a descriptor holds while its connection is open, or `nil` if the peer's source
    /// has as many connections as are allowed.
    fileprivate func place(of peer: SocketEndpoint) -> (any DescriptorObserver)? {
        let isExempt = isExempt(peer)
        if !isExempt, let source = source(of: peer) { return place(of: source, isNew: true) }
        state.withLock { $0.counts.noteAccepted() }
        return isExempt ? ProxiedPlace(in: self) : self
    }

    /// - Parameter isNew: Whether the connection has just been accepted.
    fileprivate func place(of source: SourceKey, isNew: Bool) -> ConnectionPlace? {
        state.withLock { state in
            guard let slot = state.sources.enter(source, limit: state.effectiveLimitPerSource) else {
                state.counts.refusedBySource += 1
                return nil
            }
            if state.limiter != nil, state.limiter?.judge(source, at: .now) != .admitted {
                state.counts.refusedByRate += 1
                state.sources.leave(slot)
                return nil
            }
            if isNew { state.counts.noteAccepted() }
            return ConnectionPlace(in: self, of: slot)
        }
    }

    /// Adds a connection to the connections that may be replaced, and resumes waiting listeners.
    fileprivate func beginTrial(of place: ConnectionPlace, _ owner: any ConnectionOwner) {
        wake(ifFull: true) { state in
            // Few servers reach the limit, so connections should not pay for a trial far below it.
            guard let limit = state.limit, state.open > limit / 2 else { return }
            place.beginTrial(of: owner, &state.sources)
        }
    }

    /// Keeps a proven connection, even if it was chosen to be replaced.
    fileprivate func endTrial(of place: ConnectionPlace) {
        var owner: (any ConnectionOwner)?
        wake(ifFull: true) { state in
            owner = place.endTrial(&state.sources)
            noteStay(of: place, &state)
        }
        withExtendedLifetime(owner) {}
    }

    fileprivate func returnPermit() {
        wake { state in
            state.open -= 1
            state.counts.open -= 1
        }
    }

    fileprivate func returnPermit(of place: ConnectionPlace) {
        var owner: (any ConnectionOwner)?
        wake { state in
            state.open -= 1
            state.counts.open -= 1
            owner = place.endTrial(&state.sources)
            state.sources.leave(place.source)
            if state.leaving === place { state.counts.replaced += 1 }
            noteStay(of: place, &state)
        }
        // Released outside the lock, because its `deinit` may take other locks.
        withExtendedLifetime(owner) {}
    }

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

    /// Changes the limit for future connections of each source. With `nil` it is four fifths of the limit.
    package func setLimitPerSource(_ limit: Int?) {
        state.withLock { $0.limitPerSource = limit }
    }

    /// Changes the limit on the rate of new connections, and discards the rates measured so far.
    package func setRateLimit(_ limit: SourceRateLimit?) { state.withLock { $0.limiter = limit.map { SourceRateLimiter($0) } } }

    /// The bits of an address that identify its source. A change applies to later connections.
    package var prefix: SourcePrefix {
        get { state.withLock { $0.prefix } }
        set { state.withLock { $0.prefix = newValue } }
    }

    /// Returns `nil` for a peer that is not on an IP network.
    package func source(of peer: SocketEndpoint) -> SourceKey? { SourceKey(limited: peer, prefix) }

    /// The limit on the open connections of one source.
    package var limitPerSource: Int { state.withLock { $0.effectiveLimitPerSource } }

    package var counts: AcceptCounts { state.withLock { $0.counts } }

    /// The number of connections that have a trial. Some may have proved themselves without TLS.
    package var unprovenCount: Int { state.withLock { $0.sources.unprovenCount } }

    /// The number of sources with open connections.
    package var sourceCount: Int { state.withLock { $0.sources.sourceCount } }

    /// Changes the state and resumes the waiting listeners.
    ///
    /// - Parameter ifFull: Whether to resume them even if no permit is available.
    private func wake(ifFull: Bool = false, after change: (inout State) -> Void) {
        let woken = state.withLock { state -> Set<LoopRegistration> in
            change(&state)
            // Without a permit, a listener stays in `waiting`.
            guard state.hasRoom else { return ifFull ? state.waiting : [] }
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

    /// How often a listener was refused a permit. Without trials, this grows by at most one for each new
    /// connection and for each connection that closes.
    package var refusalCount: Int { state.withLock { $0.refusals } }
}

extension AcceptQuota: DescriptorObserver {
    func descriptorDidFind(_ owner: any ConnectionOwner) {}

    func ownerIsProven() {}

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

    /// Attaches the permit to `descriptor`, which returns it on close. Returns `false` if the peer's source
    /// has as many connections as are allowed.
    consuming func handOver(to descriptor: SocketDescriptor, of peer: SocketEndpoint) -> Bool {
        guard let place = quota?.place(of: peer) else { return false }
        quota = nil
        descriptor.observer = place
        return true
    }
}

/// The place of a connection of a source.
private final class ConnectionPlace: DescriptorObserver {
    private struct Trial {
        let place: SourceGroups<ConnectionPlace>.Place
        let owner: any ConnectionOwner
    }

    private let quota: AcceptQuota
    let source: SourceGroups<ConnectionPlace>.Slot
    /// `nil` before and after the trial. A closed descriptor has no trial.
    private let trial = Locked<Trial?>(nil)

    init(in quota: AcceptQuota, of source: SourceGroups<ConnectionPlace>.Slot) {
        (self.quota, self.source) = (quota, source)
    }

    func beginTrial(of owner: any ConnectionOwner, _ sources: inout SourceGroups<ConnectionPlace>) {
        let place = sources.append(self, of: source, at: .now)
        trial.withLock { $0 = Trial(place: place, owner: owner) }
    }

    /// Returns the owner, or `nil` outside a trial.
    func endTrial(_ sources: inout SourceGroups<ConnectionPlace>) -> (any ConnectionOwner)? {
        guard let trial = trial.withLock({ $0.take() }) else { return nil }
        sources.remove(trial.place)
        return trial.owner
    }

    func descriptorDidFind(_ owner: any ConnectionOwner) { quota.beginTrial(of: self, owner) }

    func ownerIsProven() { quota.endTrial(of: self) }

    func descriptorDidClose() { quota.returnPermit(of: self) }
}

/// The place of a connection from a proxy, which is charged to the proxy's client when it is known.
package final class ProxiedPlace: DescriptorObserver {
    private enum State {
        case uncharged((any ConnectionOwner)?)
        case charged(any DescriptorObserver)
        case closed
    }

    private let quota: AcceptQuota
    private let state = Locked(State.uncharged(nil))

    fileprivate init(in quota: AcceptQuota) {
        self.quota = quota
    }

    /// Charges the connection to its client, once. Returns `false` if the client's source has as many
    /// connections as are allowed.
    package func charge(to client: SocketEndpoint) -> Bool {
        state.withLock { state in
            guard case .uncharged(let owner) = state, let source = quota.source(of: client) else { return true }
            guard let place = quota.place(of: source, isNew: false) else { return false }
            state = .charged(place)
            if let owner { place.descriptorDidFind(owner) }
            return true
        }
    }

    func descriptorDidFind(_ owner: any ConnectionOwner) {
        state.withLock { state in
            if case .uncharged = state { state = .uncharged(owner) }
        }
    }

    func ownerIsProven() {
        if case .charged(let place) = state.withLock({ $0 }) { place.ownerIsProven() }
    }

    func descriptorDidClose() {
        let earlier = state.withLock { state in
            defer { state = .closed }
            return state
        }
        if case .charged(let place) = earlier { place.descriptorDidClose() } else { quota.returnPermit() }
    }
}

extension SocketDescriptor {
    /// The place of an accepted connection from a proxy.
    package var proxiedPlace: ProxiedPlace? { observer as? ProxiedPlace }

    /// Sets the owner of an accepted connection, which is notified when the connection should be replaced.
    package func setOwner(_ owner: any ConnectionOwner) { observer?.descriptorDidFind(owner) }

    /// Called when the peer has proved itself, so that the connection keeps its place.
    package func keepPlace() { observer?.ownerIsProven() }
}

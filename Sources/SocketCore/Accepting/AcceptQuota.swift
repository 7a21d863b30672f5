// Rules of the quota:
//  1. A connection holds a permit from before `accept4` until its descriptor is closed or relinquished. The
//     permit is attached to the descriptor itself, whichever object owns the descriptor.
//  2. A listener that gets no permit stops accepting, and connections stay in the kernel's backlog. The
//     listener resumes when permits are available again: after a permit is returned, connections are taken,
//     or a limit is raised. Until then, an event from the kernel only causes another check of the quota.
//  3. Lowering the limit closes no connections.
//  4. A source has at most `limitPerSource` connections. Further connections from it are closed when they are
//     accepted, because the kernel's backlog cannot be reordered. A connection from an exempt peer, such as a
//     proxy, is charged to its client later (`charge(to:)`).
//  5. `aheadLimit` bounds the number of accepted connections that have not been taken yet (see
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
        /// The sources with open connections.
        var sources: [SourceKey: Source] = [:]
        var crowdedCount = 0
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

    private struct Source {
        let places: SourcePlaces
        var count = 0
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
        if isNew { beginWait() }
        return isTaken ? AcceptPermit(of: self) : nil
    }

    /// Called when a listener has closed, which may be waiting for a permit.
    func endWait(of waiter: LoopRegistration) {
        state.withLock { _ = $0.waiting.remove(waiter) }
    }

    /// Returns the object that a descriptor holds while its connection is open, or `nil` if the peer's source
    /// has as many connections as are allowed.
    fileprivate func place(of peer: SocketEndpoint) -> (any DescriptorObserver)? {
        if isExempt(peer) { return ProxiedPlace(in: self) }
        guard let source = SourceKey(limited: peer) else { return self }
        return places(of: source)
    }

    fileprivate func places(of source: SourceKey) -> SourcePlaces? {
        state.withLock { state in
            var entry = state.sources[source] ?? Source(places: SourcePlaces(of: source, in: self))
            guard entry.count < state.effectiveLimitPerSource else {
                state.crowdedCount += 1
                return nil
            }
            entry.count += 1
            state.sources[source] = entry
            return entry.places
        }
    }

    fileprivate func returnPermit() {
        wake { $0.open -= 1 }
    }

    fileprivate func returnPermit(of source: SourceKey) {
        wake { state in
            state.open -= 1
            guard let index = state.sources.index(forKey: source) else { return }
            state.sources.values[index].count -= 1
            if state.sources.values[index].count == 0 { state.sources.remove(at: index) }
        }
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

    /// Changes the limit for future connections of each source. With `nil` it is four fifths of the limit.
    package func setLimitPerSource(_ limit: Int?) {
        state.withLock { $0.limitPerSource = limit }
    }

    /// The limit on the open connections of one source.
    package var limitPerSource: Int { state.withLock { $0.effectiveLimitPerSource } }

    /// The number of connections that were closed because of the limit on their source.
    package var crowdedCount: Int { state.withLock { $0.crowdedCount } }

    /// The number of sources with open connections.
    package var sourceCount: Int { state.withLock { $0.sources.count } }

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

    /// Attaches the permit to `descriptor`, which returns it on close. Returns `false` if the peer's source
    /// has as many connections as are allowed.
    consuming func handOver(to descriptor: SocketDescriptor, of peer: SocketEndpoint) -> Bool {
        guard let place = quota?.place(of: peer) else { return false }
        quota = nil
        descriptor.observer = place
        return true
    }
}

/// The places of one source's connections.
private final class SourcePlaces: DescriptorObserver {
    private let source: SourceKey
    private let quota: AcceptQuota

    init(of source: SourceKey, in quota: AcceptQuota) {
        (self.source, self.quota) = (source, quota)
    }

    func descriptorDidClose() { quota.returnPermit(of: source) }
}

/// The place of a connection from a proxy, which is charged to the proxy's client when it is known.
package final class ProxiedPlace: DescriptorObserver {
    private enum State {
        case uncharged
        case charged(any DescriptorObserver)
        case closed
    }

    private let quota: AcceptQuota
    private let state = Locked(State.uncharged)

    fileprivate init(in quota: AcceptQuota) {
        self.quota = quota
    }

    /// Charges the connection to its client, once. Returns `false` if the client's source has as many
    /// connections as are allowed.
    package func charge(to client: SocketEndpoint) -> Bool {
        state.withLock { state in
            guard case .uncharged = state, let source = SourceKey(limited: client) else { return true }
            guard let places = quota.places(of: source) else { return false }
            state = .charged(places)
            return true
        }
    }

    func descriptorDidClose() {
        let earlier = state.withLock { state in
            defer { state = .closed }
            return state
        }
        if case .charged(let places) = earlier { places.descriptorDidClose() } else { quota.returnPermit() }
    }
}

extension SocketDescriptor {
    /// The place of an accepted connection from a proxy.
    package var proxiedPlace: ProxiedPlace? { observer as? ProxiedPlace }
}

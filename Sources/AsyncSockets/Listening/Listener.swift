// Rules for a socket's listener:
//  1. A listener exists once every address is bound. If one address cannot be bound, the sockets bound so far
//     are closed and no event is delivered.
//  2. After `close`, the acceptors accept no more connections, but a connection that was just accepted may
//     still arrive before the end is delivered. A `SocketListener` serves it. An `AsyncSocket` closes it,
//     because its delegate expects no connection after `disconnect`.
//  3. The end is delivered once, when the last acceptor has closed.
//  4. Connections are accepted and events delivered only after the end of the socket's previous use.
//  5. If accepting fails permanently on one address, the whole listener closes with the error, because a
//     listener that serves only some of its addresses looks healthy.

internal import Glibc
internal import Logging
internal import SocketBuffers
internal import SocketCore

/// The listening half of a socket: one `Acceptor` for each address, all on one port, or for each inherited
/// descriptor.
final class Listener: Sendable {
    struct Setup: Sendable {
        let loop: SocketEventLoop
        let options: SocketOptionSet
        let quota: AcceptQuota
        let logger: Logger
        let observer: (any SocketObserver)?
        /// Called on the loop.
        let accepted: @Sendable (SocketDescriptor, SocketEndpoint, Listener) -> Void
        /// Called once on the loop, when the last acceptor has closed.
        let ended: @Sendable (Listener) -> Void
    }

    private struct State {
        var acceptors: [Acceptor] = []
        var openCount = 0
        var isClosed = false
        var hasLost = false
        var isEndDelivered = false
        var failure: AsyncSocketError?
        /// When reaching `maximumConnections` may be logged again.
        var nextNotice: ContinuousClock.Instant?
        /// When reaching `maximumConnectionsPerSource` may be logged again.
        var nextCrowdedNotice: ContinuousClock.Instant?
        /// A strong reference to itself from `close()` until the last acceptor has closed, because its socket
        /// may already be in use for something else.
        var ending: Listener?
    }

    private let state = Locked(State())
    /// Reached when the listener may deliver to the socket's delegate, after the end of the socket's previous
    /// use.
    private let beginning = Milestone()
    private let quota: AcceptQuota
    let logger: Logger
    let observer: (any SocketObserver)?

    private init(_ setup: Setup) {
        quota = setup.quota
        logger = setup.logger
        observer = setup.observer
    }

    /// The IPv4 address if the listener has one, and otherwise the IPv6 or Unix-domain address. For inherited
    /// sockets, the address of the first socket.
    var localAddress: SocketEndpoint? { acceptors.first?.localAddress }

    /// The local address for log lines.
    private var name: String { localAddress.map { "\($0)" } ?? "" }

    var localAddresses: [SocketEndpoint] { acceptors.compactMap(\.localAddress) }

    var isOpen: Bool { state.withLock { !$0.isClosed } }

    /// Why accepting has failed permanently. `nil` if it has not failed, or if `close()` was called first.
    var failure: AsyncSocketError? { state.withLock { $0.failure } }

    /// Whether accepting has started, which requires that the end of the socket's previous use has been
    /// delivered.
    var hasBegun: Bool { beginning.isReached }

    /// Returns `true` on the first call. Two paths deliver the end to the delegate, and only the first may do
    /// so.
    func claimEnd() -> Bool {
        state.withLock { state in
            defer { state.isEndDelivered = true }
            return !state.isEndDelivered
        }
    }

    var acceptors: [Acceptor] { state.withLock { $0.acceptors } }

    /// Returns `true` for the first lost connection only.
    func isFirstLoss() -> Bool {
        state.withLock { state in
            defer { state.hasLost = true }
            return !state.hasLost
        }
    }

    // MARK: - Starting and closing

    /// Listens on all `addresses`, with the port of the first. If that port is 0, the kernel chooses it.
    ///
    /// Address families that this machine does not support are skipped, unless no address would remain.
    static func listen(on addresses: [SocketEndpoint], _ setup: Setup) throws(SystemError) -> Listener {
        for _ in 0..<portAttempts {
            do throws(SystemError) {
                return try bind(addresses, setup)
            } catch {
                // The port that the kernel chose for one family may be in use in the other. Let the kernel
                // choose again.
                guard error.isAddressInUse, addresses.count > 1, addresses.first?.port == 0 else { throw error }
            }
        }
        return try bind(addresses, setup)
    }

    private static let portAttempts = 16

    private static func bind(_ addresses: [SocketEndpoint], _ setup: Setup) throws(SystemError) -> Listener {
        let listener = Listener(setup)
        let receiver = listener.makeReceiver(setup)
        var acceptors: [Acceptor] = []
        for address in addresses {
            let port = acceptors.first?.localAddress.port ?? address.port ?? 0
            do throws(SystemError) {
                acceptors.append(
                    try Acceptor(
                        on: address.withPort(port), options: setup.options, quota: setup.quota, loop: setup.loop,
                        receiver: receiver))
            } catch {
                if error.isFamilyMissing, addresses.count > 1 { continue }
                for acceptor in acceptors { acceptor.discard() }
                throw error.about(address)
            }
        }
        guard !acceptors.isEmpty else { throw SystemError("socket", errno: EAFNOSUPPORT) }
        listener.state.withLock { $0 = State(acceptors: acceptors, openCount: acceptors.count) }
        return listener
    }

    /// Accepts connections from sockets that are already listening, such as sockets from a service manager,
    /// and takes ownership of the descriptors.
    ///
    /// Each socket keeps its address, port and file. Closing this listener closes only the descriptors of
    /// this process; the sockets stay open in the other processes that share them.
    ///
    /// - Throws: The errors of `InheritedDescriptor.takeListener`, or EINVAL for an empty list. If a
    ///   descriptor fails, the descriptors before it in the list are closed.
    static func listen(onInherited descriptors: [InheritedDescriptor], _ setup: Setup) throws(SystemError) -> Listener {
        guard !descriptors.isEmpty else {
            throw SystemError("accept4", errno: EINVAL, detail: "no inherited descriptor to listen on: pass at least one")
        }
        let listener = Listener(setup)
        let receiver = listener.makeReceiver(setup)
        var acceptors: [Acceptor] = []
        for descriptor in descriptors {
            do throws(SystemError) {
                acceptors.append(
                    try Acceptor(
                        adopting: descriptor.takeListener(), inheritedFile: descriptor.file, options: setup.options,
                        quota: setup.quota, loop: setup.loop, receiver: receiver))
            } catch {
                for acceptor in acceptors { acceptor.discard() }
                throw error
            }
        }
        listener.state.withLock { $0 = State(acceptors: acceptors, openCount: acceptors.count) }
        return listener
    }

    private func makeReceiver(_ setup: Setup) -> Acceptor.Receiver {
        Acceptor.Receiver(
            accepted: { [weak self] descriptor, peer in
                guard let self else { return }
                setup.accepted(descriptor, peer, self)
            },
            paused: { [weak self, logger] reason, seconds in
                logger.warning("accepting paused", metadata: ["reason": "\(reason)", "seconds": "\(seconds)"])
                self?.deliverPause(.shortage(AsyncSocketError(reason, operation: .accept)), seconds)
            },
            refused: { [weak self] reason, seconds, isFirst in self?.noteRefusal(reason, seconds, isFirst) },
            full: { [weak self] in self?.noteFull() },
            crowded: { [weak self] in self?.refuse($0) },
            failed: { [weak self] in self?.fail(with: $0) },
            closed: { [weak self] in
                guard let self, isLastEnd() else { return }
                // Deliver the end on the loop, because `start` may be running within a call by the user.
                beginning.whenReached { setup.loop.run { setup.ended(self) } }
            }
        )
    }

    /// Called on the loop when the quota has no permit. Logs at most once a minute, because peers can open
    /// and close connections at the limit as often as they like.
    private func noteFull() {
        if let limit = quota.reachedLimit, isNoticeDue(\.nextNotice) {
            logger.warning(
                "accepting paused",
                metadata: ["reason": "maximumConnections reached", "limit": "\(limit)", "listener": "\(name)"])
        }
        deliverPause(.connectionLimit)
    }

    func source(of peer: SocketEndpoint) -> SourceKey? { quota.source(of: peer) }

    /// Called on the loop when a connection was closed because of the limits on its source.
    private func refuse(_ peer: SocketEndpoint) {
        let error = noteCrowd(of: peer)
        ConnectionObservation.deliver(.failed(error), of: peer, to: observer)
    }

    /// Logs, at most once a minute, that a source has as many connections as are allowed. Returns the error.
    func noteCrowd(of peer: SocketEndpoint) -> AsyncSocketError {
        let limit = quota.limitPerSource
        if isNoticeDue(\.nextCrowdedNotice) {
            logger.warning(
                "connections refused",
                metadata: [
                    "reason": "maximumConnectionsPerSource or rateLimit reached", "limit": "\(limit)", "peer": "\(peer)",
                    "listener": "\(name)",
                ])
        }
        return .crowded(limit)
    }

    private func isNoticeDue(_ next: WritableKeyPath<State, ContinuousClock.Instant?>) -> Bool {
        state.withLock { state in
            let now = ContinuousClock.now
            if let next = state[keyPath: next], now < next { return false }
            state[keyPath: next] = now + .seconds(60)
            return true
        }
    }

    /// Called on the loop when accept4(2) has failed and will be retried.
    private func noteRefusal(_ reason: SystemError, _ seconds: Double, _ isFirst: Bool) {
        if isFirst {
            logger.warning(
                "accepting failed and will be retried", metadata: ["reason": "\(reason)", "listener": "\(name)"])
        }
        deliverPause(.refused(AsyncSocketError(reason, operation: .accept)), seconds)
    }

    /// Called on the loop when accepting has failed permanently.
    private func fail(with reason: SystemError) {
        let isFirst = state.withLock { state in
            guard !state.isClosed, state.failure == nil else { return false }
            state.failure = AsyncSocketError(reason, operation: .accept)
            return true
        }
        guard isFirst else { return }
        logger.error("a listener failed", metadata: ["error": "\(reason)", "listener": "\(name)"])
        close()
    }

    /// Called on the loop when accepting pauses.
    private func deliverPause(_ reason: AcceptPause.Reason, _ seconds: Double? = nil) {
        ConnectionObservation.deliver(
            AcceptPause(reason: reason, retryDelay: seconds.map { .seconds($0) }, listener: localAddress), to: observer)
    }

    private func isLastEnd() -> Bool {
        state.withLock { state in
            state.openCount -= 1
            if state.openCount == 0 { state.ending = nil }
            return state.openCount == 0
        }
    }

    func start() {
        for acceptor in acceptors { acceptor.start() }
        beginning.reach()
    }

    /// Closes the listener. Returns `false` if it was already closed.
    @discardableResult
    func close() -> Bool {
        let isFirst = state.withLock { state in
            defer { state.isClosed = true }
            if state.openCount > 0 { state.ending = self }
            return !state.isClosed
        }
        for acceptor in acceptors { acceptor.close() }
        return isFirst
    }

    /// Closes a listener that has not started, without delivering any event.
    func discard() {
        state.withLock { $0.isClosed = true }
        for acceptor in acceptors { acceptor.discard() }
    }

    // MARK: - Descriptors

    func set<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(SystemError) {
        for acceptor in acceptors {
            try acceptor.withDescriptor { (descriptor) throws(SystemError) in try descriptor.set(option, to: value) }
        }
    }

    func value<Value>(of option: SocketOptionKey<Value>) throws(SystemError) -> Value? {
        try acceptors.first?.withDescriptor { (descriptor) throws(SystemError) in try descriptor.value(of: option) }
    }

    /// Returns a duplicate of the first acceptor's descriptor, which the caller must close, or `nil` if it is
    /// closed.
    func duplicateDescriptor() -> Int32? {
        let copy = acceptors.first.flatMap { acceptor in
            acceptor.withDescriptor { fcntl($0.rawValue, F_DUPFD_CLOEXEC, 0) }
        }
        return copy.flatMap { $0 < 0 ? nil : $0 }
    }
}

extension AsyncSocketError {
    fileprivate static func crowded(_ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            .tooManyConnections, fault: .peer, operation: .accept,
            message: "the peer's source has \(limit) connections (maximumConnectionsPerSource), or exceeds rateLimit")
    }
}

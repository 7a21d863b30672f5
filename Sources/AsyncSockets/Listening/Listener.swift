// Rules of a socket's listener:
//  1. It exists from the moment every address is bound; when one cannot be bound, nothing is left of the
//     others, and nothing is delivered.
//  2. After `close` no connection reaches the delegate: those on their way are closed.
//  3. Its end is delivered once, when the last of its acceptors has ended.
//  4. It accepts, and delivers, only after the end of what its socket did before.
//  5. If accepting fails permanently on one address, the whole listener closes with the error, because a
//     listener that serves only some of its addresses looks healthy.

internal import Glibc
internal import Logging
internal import SocketBuffers
internal import SocketCore

/// The listening half of a socket: one `Acceptor` for each address, on one port, or for each inherited
/// descriptor.
final class Listener: Sendable {
    /// The values that all its acceptors share.
    struct Setup: Sendable {
        let loop: EventLoop
        let options: SocketOptionSet
        let quota: AcceptQuota
        let logger: Logger
        let observer: (any SocketObserver)?
        /// Called on the loop.
        let accepted: @Sendable (SocketDescriptor, SocketAddress, Listener) -> Void
        /// Called on the loop, once, when the last of its acceptors has ended.
        let ended: @Sendable (Listener) -> Void
    }

    private struct State {
        var acceptors: [Acceptor] = []
        var openCount = 0
        var isClosed = false
        var hasLost = false
        var isEndDelivered = false
        /// Why accepting has failed permanently.
        var failure: AsyncSocketError?
        /// Itself, from `close()` to its end: its socket may be busy with something else by then.
        var ending: Listener?
    }

    private let state = Locked(State())
    /// Reached when it may deliver to its socket's delegate: after the end of what the socket did before.
    private let beginning = Milestone()
    let logger: Logger
    let observer: (any SocketObserver)?

    private init(_ setup: Setup) {
        logger = setup.logger
        observer = setup.observer
    }

    /// The IPv4 address if it has one, or else the IPv6 one, or the Unix-domain one; of inherited sockets,
    /// the first one's.
    var localAddress: SocketAddress? { acceptors.first?.localAddress }

    /// The addresses of all its sockets.
    var localAddresses: [SocketAddress] { acceptors.compactMap(\.localAddress) }

    /// True until `close()` is called.
    var isOpen: Bool { state.withLock { !$0.isClosed } }

    /// Why accepting has failed permanently; `nil` while it works, and after `close()`.
    var failure: AsyncSocketError? { state.withLock { $0.failure } }

    /// True once it accepts: the end of what the socket did before is delivered.
    var hasBegun: Bool { beginning.isReached }

    /// True for the first of the two ways on which its end goes to the delegate.
    func claimEnd() -> Bool {
        state.withLock { state in
            defer { state.isEndDelivered = true }
            return !state.isEndDelivered
        }
    }

    private var acceptors: [Acceptor] { state.withLock { $0.acceptors } }

    /// True for the first lost connection only.
    func isFirstLoss() -> Bool {
        state.withLock { state in
            defer { state.hasLost = true }
            return !state.hasLost
        }
    }

    // MARK: - Beginning and ending

    /// Listens on every one of `addresses`; all get the port of the first, which the kernel chooses when it
    /// is zero.
    ///
    /// A family that this machine lacks is left out, unless it would be the only one.
    static func listen(on addresses: [SocketAddress], _ setup: Setup) throws(SystemError) -> Listener {
        for _ in 0..<portAttempts {
            do throws(SystemError) {
                return try bind(addresses, setup)
            } catch {
                // The port that the kernel chose for one family may be taken in the other: let it choose
                // again.
                guard error.isAddressInUse, addresses.count > 1, addresses.first?.port == 0 else { throw error }
            }
        }
        return try bind(addresses, setup)
    }

    private static let portAttempts = 16

    private static func bind(_ addresses: [SocketAddress], _ setup: Setup) throws(SystemError) -> Listener {
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

    /// Accepts from sockets that listen already, such as a service manager's, and takes them over.
    ///
    /// Each keeps the address, port and file that it has. The end of this listener closes our descriptors;
    /// the sockets live on with the others that have them.
    ///
    /// - Throws: What `InheritedDescriptor.takeListener` throws, or EINVAL for an empty list. Those before
    ///   the one that failed are closed.
    static func listen(onInherited descriptors: [InheritedDescriptor], _ setup: Setup) throws(SystemError) -> Listener {
        guard !descriptors.isEmpty else {
            throw SystemError("accept4", errno: EINVAL, detail: "there is no inherited descriptor to listen on")
        }
        let listener = Listener(setup)
        let receiver = listener.makeReceiver(setup)
        var acceptors: [Acceptor] = []
        for descriptor in descriptors {
            do throws(SystemError) {
                acceptors.append(
                    try Acceptor(
                        adopting: descriptor.takeListener(), options: setup.options, quota: setup.quota, loop: setup.loop,
                        receiver: receiver))
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
                guard let self, isOpen else { return }
                setup.accepted(descriptor, peer, self)
            },
            paused: { [weak self, logger] reason, seconds in
                logger.warning("accepting pauses", metadata: ["reason": "\(reason)", "seconds": "\(seconds)"])
                self?.deliverPause(.shortage(AsyncSocketError(reason, operation: "accept")), seconds)
            },
            refused: { [weak self] reason, seconds, isFirst in self?.noteRefusal(reason, seconds, isFirst) },
            full: { [weak self] in self?.deliverPause(.connectionLimit) },
            failed: { [weak self] in self?.fail(with: $0) },
            closed: { [weak self] in
                guard let self, isLastEnd() else { return }
                // Through the loop: `start` may run within a call that the user makes.
                beginning.whenReached { setup.loop.run { setup.ended(self) } }
            }
        )
    }

    /// Called on the loop when accept4(2) was refused and will be retried.
    private func noteRefusal(_ reason: SystemError, _ seconds: Double, _ isFirst: Bool) {
        if isFirst {
            logger.warning(
                "accepting was refused and will be retried",
                metadata: ["reason": "\(reason)", "listener": "\(localAddress.map { "\($0)" } ?? "")"])
        }
        deliverPause(.refused(AsyncSocketError(reason, operation: "accept")), seconds)
    }

    /// Called on the loop when accepting has failed permanently.
    private func fail(with reason: SystemError) {
        let isFirst = state.withLock { state in
            guard !state.isClosed, state.failure == nil else { return false }
            state.failure = AsyncSocketError(reason, operation: "accept")
            return true
        }
        guard isFirst else { return }
        logger.error(
            "a listener has failed", metadata: ["error": "\(reason)", "listener": "\(localAddress.map { "\($0)" } ?? "")"])
        close()
    }

    /// On the loop: accepting pauses.
    private func deliverPause(_ reason: AcceptPause.Reason, _ seconds: Double? = nil) {
        ConnectionObservation.deliver(
            AcceptPause(reason: reason, seconds: seconds, listener: localAddress), to: observer)
    }

    private func isLastEnd() -> Bool {
        state.withLock { state in
            state.openCount -= 1
            if state.openCount == 0 { state.ending = nil }
            return state.openCount == 0
        }
    }

    /// Begins to accept.
    func start() {
        for acceptor in acceptors { acceptor.start() }
        beginning.reach()
    }

    /// Ends it; false when it was closed before.
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

    /// Ends a listener that has not started, and delivers nothing.
    func discard() {
        state.withLock { $0.isClosed = true }
        for acceptor in acceptors { acceptor.discard() }
    }

    // MARK: - The descriptors

    func set<Value>(_ option: SocketOption<Value>, to value: Value) throws(SystemError) {
        for acceptor in acceptors {
            try acceptor.withDescriptor { (descriptor) throws(SystemError) in try descriptor.set(option, to: value) }
        }
    }

    func value<Value>(of option: SocketOption<Value>) throws(SystemError) -> Value? {
        try acceptors.first?.withDescriptor { (descriptor) throws(SystemError) in try descriptor.value(of: option) }
    }

    /// A second descriptor of the first acceptor's socket, which the caller closes; nil when it is closed.
    func duplicateDescriptor() -> Int32? {
        let copy = acceptors.first.flatMap { acceptor in
            acceptor.withDescriptor { fcntl($0.rawValue, F_DUPFD_CLOEXEC, 0) }
        }
        return copy.flatMap { $0 < 0 ? nil : $0 }
    }
}

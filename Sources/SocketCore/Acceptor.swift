// Rules of a listener:
//  1. One `accept4` after the other until EAGAIN, at most `batchLimit` in a turn; then others have theirs.
//  2. An error that concerns one connection (ECONNABORTED and its like, accept(2)) skips that connection.
//  3. Out of descriptors or memory (EMFILE, ENFILE, ENOBUFS, ENOMEM): pause, at first for 50 ms and then twice as long up to a second, and
//     never spin. The connections wait in the backlog meanwhile, and new ones do not shorten the pause.

internal import CLinux
internal import Glibc

/// A listening socket: hands every accepted connection to its owner.
package final class Acceptor: EventHandler, TurnOwner, @unchecked Sendable {
    // Unchecked: `descriptor`, `pause` and the rest below are only used inside the turn.

    /// What can be asked of a listener.
    package enum Message: Sendable {
        case events(LoopEvents)
        case close
    }

    /// Who gets the connections and hears of troubles; called on the loop, inside the listener's turn.
    package struct Receiver: Sendable {
        let accepted: @Sendable (SocketDescriptor, SocketAddress) -> Void
        let paused: @Sendable (SystemError, Double) -> Void
        let closed: @Sendable () -> Void

        package init(
            accepted: @escaping @Sendable (_ connection: SocketDescriptor, _ peer: SocketAddress) -> Void,
            paused: @escaping @Sendable (_ reason: SystemError, _ seconds: Double) -> Void,
            closed: @escaping @Sendable () -> Void
        ) {
            self.accepted = accepted
            self.paused = paused
            self.closed = closed
        }
    }

    /// The address it listens on, with the port that the kernel chose when zero was asked for.
    package let localAddress: SocketAddress

    private let loop: EventLoop
    private let receiver: Receiver
    private let turn = SocketTurn<Message>(queue: nil)
    private let descriptor: SocketDescriptor
    private var registration: LoopRegistration?
    private var isClosed = false
    private var isPaused = false
    private var pause = Acceptor.shortestPause

    private static let batchLimit = 64
    private static let backlog: CInt = 1024
    private static let shortestPause = 0.05
    private static let longestPause = 1.0

    /// Binds and listens; connections come once `start()` has been called.
    package init(on address: SocketAddress, loop: EventLoop, receiver: Receiver) throws(SystemError) {
        let descriptor = try SocketDescriptor(streamOf: address.family)
        try descriptor.listen(on: address, backlog: Self.backlog)
        guard let bound = descriptor.localAddress else { throw SystemError("getsockname") }
        localAddress = bound
        self.descriptor = descriptor
        self.loop = loop
        self.receiver = receiver
    }

    /// Begins to accept. The loop keeps the listener alive until `close()`.
    package func start() throws(SystemError) {
        let registration = loop.register(self)
        self.registration = registration
        try loop.watch(descriptor, for: registration)
    }

    /// Stops listening at once, and has the receiver told on the loop. Connections that nobody has accepted are reset by the kernel.
    package func close() {
        turn.post(.close, to: self)
    }

    package func handle(_ events: LoopEvents) {
        turn.post(.events(events), to: self)
    }

    // MARK: - Inside the turn

    package func receive(_ message: Message) {
        switch message {
        case .events(let events): react(to: events)
        case .close: closeNow()
        }
    }

    package func finishTurn() {}
    package func didLeaveTurn() {}

    package func leaveRestToLoop() {
        if let registration { loop.resume(registration) }
    }

    private func react(to events: LoopEvents) {
        if isClosed { return retire() }
        if events.contains(.deadline) { isPaused = false }
        if !isPaused { acceptSome() }
    }

    private func acceptSome() {
        guard let registration else { return }
        for _ in 0..<Self.batchLimit {
            switch descriptor.accept() {
            case .accepted(let connection, let peer):
                pause = Self.shortestPause
                receiver.accepted(connection, peer)
            case .none: return
            case .skipped: continue
            case .exhausted(let error): return backOff(error, registration)
            }
        }
        loop.resume(registration)
    }

    private func backOff(_ error: SystemError, _ registration: LoopRegistration) {
        isPaused = true
        receiver.paused(error, pause)
        loop.setDeadline(Deadline(after: pause), of: registration)
        pause = min(pause * 2, Self.longestPause)
    }

    private func closeNow() {
        guard let registration, !isClosed else { return }
        isClosed = true
        loop.unwatch(descriptor)
        descriptor.close()
        loop.resume(registration)
    }

    private func retire() {
        guard let registration else { return }
        self.registration = nil
        loop.deregister(registration)
        receiver.closed()
    }
}

extension SocketDescriptor {
    fileprivate enum AcceptAnswer {
        case accepted(SocketDescriptor, from: SocketAddress)
        case none
        case skipped
        case exhausted(SystemError)
    }

    fileprivate func listen(on address: SocketAddress, backlog: CInt) throws(SystemError) {
        setFlag(level: SOL_SOCKET, option: SO_REUSEADDR)
        // Without it an IPv6 listener takes the IPv4 port too, and the two cannot share one number.
        if address.family == .ipv6 { setFlag(level: CInt(IPPROTO_IPV6), option: IPV6_V6ONLY) }
        guard address.withSockaddr({ bind(rawValue, $0, $1) }) == 0 else { throw SystemError("bind") }
        guard Glibc.listen(rawValue, backlog) == 0 else { throw SystemError("listen") }
    }

    fileprivate func accept() -> AcceptAnswer {
        let flags = CInt(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        // The address is asked for here: a peer that has reset the connection meanwhile has none later.
        let connection = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                retryingOnInterrupt { accept4(rawValue, address, &length, flags) }
            }
        }
        if connection >= 0 {
            let descriptor = SocketDescriptor(adopting: connection)
            return SocketAddress(storage: storage, length: length).map { .accepted(descriptor, from: $0) } ?? .skipped
        }
        switch errno {
        case EAGAIN, EBADF, EINVAL: return .none
        case EMFILE, ENFILE, ENOBUFS, ENOMEM: return .exhausted(SystemError("accept4"))
        default: return .skipped
        }
    }
}

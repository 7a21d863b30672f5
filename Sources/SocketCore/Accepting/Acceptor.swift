// Rules of a listener:
//  1. In each turn on the loop, it calls `accept4` until EAGAIN, but at most `batchLimit` times and for at
//     most `batchSeconds`, including the time spent in the receiver. Then other handlers run.
//  2. An error that concerns a single connection (such as ECONNABORTED, accept(2)) skips that connection.
//     After `batchLimit` such errors in a row the acceptor pauses as in a shortage.
//  3. If descriptors or memory run out (EMFILE, ENFILE, ENOBUFS, ENOMEM), or after an unexpected error, it
//     pauses as described in `FailingCall`, so that the loop does not spin. During a pause, connections stay
//     in the kernel's backlog, and new connections do not shorten the pause. The acceptor closes if retrying
//     cannot help, or if the error has occurred too often in a row.
//  4. It accepts a connection only with a permit from the quota. If no permit is available, it pauses until
//     the quota schedules a turn.
//  5. The state is protected by a lock. System calls are made while holding the lock. The receiver is called
//     on the loop, without the lock.
//  6. After `close` it accepts no more connections, even if `start` is called later. The receiver is
//     notified once, on the loop. After `discard` the receiver is not notified.
//  7. It closes its descriptor without calling shutdown(2), which would also stop other processes from
//     listening on an inherited socket.

internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A listening socket that passes every accepted connection to its receiver.
package final class Acceptor: EventHandler, Sendable {
    /// The callbacks of an acceptor, called on the loop.
    package struct Receiver: Sendable {
        let accepted: @Sendable (SocketDescriptor, SocketEndpoint) -> Void
        let paused: @Sendable (SystemError, Double) -> Void
        let refused: @Sendable (SystemError, Double, Bool) -> Void
        let full: @Sendable () -> Void
        let crowded: @Sendable (SocketEndpoint) -> Void
        let failed: @Sendable (SystemError) -> Void
        let closed: @Sendable () -> Void

        /// - Parameters:
        ///   - paused: Descriptors or memory have run out.
        ///   - refused: accept4(2) has failed for another reason and will be retried.
        ///   - full: The quota has no permit. Accepting resumes when a permit is available.
        ///   - crowded: A connection was closed because its source has as many as are allowed.
        ///   - failed: accept4(2) has failed permanently; `closed` follows.
        package init(
            accepted: @escaping @Sendable (_ connection: SocketDescriptor, _ peer: SocketEndpoint) -> Void,
            paused: @escaping @Sendable (_ reason: SystemError, _ seconds: Double) -> Void,
            refused: @escaping @Sendable (_ reason: SystemError, _ seconds: Double, _ isFirst: Bool) -> Void = { _, _, _ in },
            full: @escaping @Sendable () -> Void = {},
            crowded: @escaping @Sendable (_ peer: SocketEndpoint) -> Void = { _ in },
            failed: @escaping @Sendable (_ reason: SystemError) -> Void = { _ in },
            closed: @escaping @Sendable () -> Void
        ) {
            self.accepted = accepted
            self.paused = paused
            self.refused = refused
            self.full = full
            self.crowded = crowded
            self.failed = failed
            self.closed = closed
        }
    }

    enum Phase {
        /// Listening, but not accepting yet.
        case bound
        case accepting
        /// accept4(2) failed and will be retried at the deadline.
        case pausing
        /// The descriptor is closed, but the receiver has not been notified.
        case closed
        /// The descriptor is closed, and the receiver needs no more notifications.
        case retired
    }

    struct State {
        var phase = Phase.bound
        var failing = FailingCall()
        var skippedCount = 0
        /// The permanent error, if accepting failed.
        var failure: SystemError?
        var registration: LoopRegistration?
        /// The file that is removed when this acceptor closes.
        var file: UnixSocketFile?
    }

    /// The address of the listener, with the port that the kernel chose if port 0 was requested.
    package let localAddress: SocketEndpoint

    private let loop: SocketEventLoop
    private let receiver: Receiver
    private let quota: AcceptQuota
    private let descriptor: SocketDescriptor
    let inheritedFile: UnixSocketFile?
    let state: Locked<State>

    private static let batchLimit = 64
    private static let batchSeconds = 0.001
    private static let backlog: CInt = 1024

    /// Binds and listens. Accepting starts with `start()`. The loop keeps the acceptor alive until `close()`
    /// or `discard()`.
    ///
    /// - Parameters:
    ///   - options: Set before the descriptor is bound.
    ///   - quota: Limits the open connections; `nil` means no limit.
    package convenience init(
        on address: SocketEndpoint, options: SocketOptionSet = SocketOptionSet(), quota: AcceptQuota? = nil,
        loop: SocketEventLoop,
        receiver: Receiver
    ) throws(SystemError) {
        let descriptor = try SocketDescriptor(streamOf: address.family, options: options)
        let file = try UnixSocketFile.make(for: address) { () throws(SystemError) in
            try descriptor.listen(on: address, options: options, backlog: Self.backlog)
        }
        try self.init(listening: descriptor, file, nil, quota, loop, receiver)
    }

    /// Uses a socket that is already listening. Accepting starts with `start()`.
    ///
    /// Other processes may share the socket, so `close()` and `discard()` close only this descriptor and do
    /// not remove a socket file. The address, the backlog, `IPV6_V6ONLY` and all options that must be set
    /// before binding remain unchanged.
    ///
    /// - Parameters:
    ///   - descriptor: Checked with `SocketDescriptor.checkListening`. It is closed if this initializer
    ///     throws.
    ///   - inheritedFile: The file that `takeFile()` takes over.
    ///   - options: Only options that take effect on a bound socket are set. They also apply to the other
    ///     processes that share the socket.
    package convenience init(
        adopting descriptor: SocketDescriptor, inheritedFile: UnixSocketFile? = nil, options: SocketOptionSet = SocketOptionSet(),
        quota: AcceptQuota? = nil, loop: SocketEventLoop, receiver: Receiver
    ) throws(SystemError) {
        try SocketDescriptor.checkListening(descriptor.rawValue)
        try options.apply(toBound: descriptor)
        try self.init(listening: descriptor, nil, inheritedFile, quota, loop, receiver)
    }

    private init(
        listening descriptor: SocketDescriptor, _ file: UnixSocketFile?, _ inheritedFile: UnixSocketFile?, _ quota: AcceptQuota?,
        _ loop: SocketEventLoop, _ receiver: Receiver
    ) throws(SystemError) {
        state = Locked(State(file: file))
        self.inheritedFile = inheritedFile
        guard let bound = descriptor.localAddress else { throw SystemError("getsockname") }
        localAddress = bound
        self.descriptor = descriptor
        self.quota = quota ?? AcceptQuota(loop: loop)
        self.loop = loop
        self.receiver = receiver
        let registration = loop.register(self)
        state.withLock { $0.registration = registration }
        do throws(SystemError) {
            try loop.watch(descriptor, for: registration)
        } catch {
            discard()
            throw error
        }
    }

    package func start() {
        change { state in
            guard case .bound = state.phase else { return false }
            state.phase = .accepting
            return true
        }
    }

    /// Stops listening immediately and notifies the receiver on the loop. The kernel resets connections that
    /// were not accepted, unless other processes share the socket.
    package func close() {
        change { shut(&$0, for: .closed) }
    }

    /// Stops listening immediately, without notifying the receiver.
    package func discard() {
        let registration = state.withLock { state in
            _ = shut(&state, for: .retired)
            return state.registration
        }
        if let registration { loop.deregister(registration) }
    }

    /// Calls `body` with the descriptor, or returns `nil` if the descriptor is closed. `body` runs while
    /// holding the lock and must only make a system call.
    package func withDescriptor<Result, Failure: Error>(
        _ body: (SocketDescriptor) throws(Failure) -> Result
    ) throws(Failure) -> Result? {
        try state.withLock { state throws(Failure) in
            switch state.phase {
            case .bound, .accepting, .pausing: try body(descriptor)
            case .closed, .retired: nil
            }
        }
    }

    /// Changes the state and requests a turn on the loop if `body` returns `true`.
    private func change(_ body: (inout State) -> Bool) {
        let registration = state.withLock { state in body(&state) ? state.registration : nil }
        if let registration { loop.resume(registration) }
    }

    /// Returns `false` if the acceptor is already closed.
    private func shut(_ state: inout State, for phase: Phase) -> Bool {
        switch state.phase {
        case .closed, .retired: return false
        case .bound, .accepting, .pausing: break
        }
        state.phase = phase
        state.file?.remove()
        loop.unwatch(descriptor)
        descriptor.close()
        return true
    }

    // MARK: - On the loop

    package func handle(_ events: LoopEvents) {
        if events.contains(.deadline) { endPause() }
        let (phase, registration) = state.withLock { ($0.phase, $0.registration) }
        guard let registration else { return }
        switch phase {
        case .bound, .pausing, .retired: return
        case .closed: retire(registration)
        case .accepting: acceptSome(registration)
        }
    }

    private func acceptSome(_ registration: LoopRegistration) {
        let begin = Deadline.now
        for _ in 0..<Self.batchLimit {
            guard let permit = quota.takePermit(for: registration, beginWait: receiver.full) else {
                if withDescriptor(\.hasInput) == true, case .until(let time) = quota.makeRoom() {
                    loop.setDeadline(time, of: registration)
                }
                return
            }
            guard acceptOne(with: permit, registration) else { return }
            if Deadline.now.seconds(since: begin) > Self.batchSeconds { break }
        }
        loop.resume(registration)
    }

    /// Returns `false` if no connection is pending, or after an error that pauses or stops the acceptor.
    private func acceptOne(with permit: consuming AcceptPermit, _ registration: LoopRegistration) -> Bool {
        let answer = state.withLock { state -> SocketDescriptor.AcceptAnswer in
            guard case .accepting = state.phase else { return .none }
            let answer = descriptor.accept()
            if answer.isSuccess {
                state.failing.succeed()
                state.skippedCount = 0
            }
            return answer
        }
        switch consume answer {
        case .accepted(let connection, let peer):
            if permit.handOver(to: connection, of: peer) {
                receiver.accepted(connection, peer)
            } else {
                // After a reset, the kernel keeps no state.
                try? connection.set(.linger, to: .zero)
                connection.close()
                receiver.crowded(peer)
            }
            return true
        case .none: return false
        case .skipped(let error): return skip(after: error, registration)
        case .exhausted(let error):
            backOff(after: error, isShortage: true, registration)
            return false
        case .refused(let error):
            backOff(after: error, isShortage: false, registration)
            return false
        case .failed(let error):
            fail(with: error)
            return false
        }
    }

    /// Returns `false` after too many failed connections in a row.
    private func skip(after error: SystemError, _ registration: LoopRegistration) -> Bool {
        let mayGoOn = state.withLock { state in
            state.skippedCount += 1
            defer { if state.skippedCount == Self.batchLimit { state.skippedCount = 0 } }
            return state.skippedCount < Self.batchLimit
        }
        if !mayGoOn { backOff(after: error, isShortage: true, registration) }
        return mayGoOn
    }

    private func backOff(after error: SystemError, isShortage: Bool, _ registration: LoopRegistration) {
        let step = state.withLock { state -> FailingCall.Step? in
            guard case .accepting = state.phase else { return nil }
            let step = state.failing.note(error, isShortage: isShortage)
            if case .pause = step { state.phase = .pausing }
            return step
        }
        switch step {
        case nil: break
        case .pause(let seconds, let isFirst):
            if error.isShortage { receiver.paused(error, seconds) } else { receiver.refused(error, seconds, isFirst) }
            loop.setDeadline(Deadline(after: seconds), of: registration)
        case .end(let error): fail(with: error)
        }
    }

    /// Closes the acceptor, as `close` does.
    private func fail(with error: SystemError) {
        change { state in
            guard shut(&state, for: .closed) else { return false }
            state.failure = error
            return true
        }
    }

    private func endPause() {
        state.withLock { state in
            if case .pausing = state.phase { state.phase = .accepting }
        }
    }

    private func retire(_ registration: LoopRegistration) {
        let failure = state.withLock { state in
            state.phase = .retired
            return state.failure
        }
        quota.endWait(of: registration)
        loop.deregister(registration)
        if let failure { receiver.failed(failure) }
        receiver.closed()
    }
}

extension SocketDescriptor {
    enum AcceptAnswer {
        case accepted(SocketDescriptor, from: SocketEndpoint)
        case none
        /// An error that concerns a single connection.
        case skipped(SystemError)
        case exhausted(SystemError)
        /// An error that may be temporary.
        case refused(SystemError)
        /// An error that is certain to repeat.
        case failed(SystemError)

        /// Classifies an error of accept4 (accept(2)).
        init(failure errno: CInt) {
            let error = SystemError("accept4", errno: errno)
            self =
                switch errno {
                case EAGAIN: .none
                case ECONNABORTED, ECONNRESET, EPROTO, ENOPROTOOPT, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ENONET,
                    ETIMEDOUT:
                    .skipped(error)
                case _ where error.isShortage: .exhausted(error)
                case _ where error.isCertainToRepeat: .failed(error)
                default: .refused(error)
                }
        }

        /// Whether accept4 succeeded, even if no connection was pending.
        var isSuccess: Bool {
            switch self {
            case .accepted, .none: true
            case .skipped, .exhausted, .refused, .failed: false
            }
        }
    }

    fileprivate func listen(on address: SocketEndpoint, options: SocketOptionSet, backlog: CInt) throws(SystemError) {
        if options.value(of: .reuseAddress) == nil { setFlag(level: SOL_SOCKET, option: SO_REUSEADDR) }
        // Without this option, an IPv6 listener would also occupy the same port for IPv4.
        if address.family == .ipv6 { setFlag(level: CInt(IPPROTO_IPV6), option: IPV6_V6ONLY) }
        guard address.withSockaddr({ bind(rawValue, $0, $1) }) == 0 else { throw SystemError("bind") }
        guard Glibc.listen(rawValue, backlog) == 0 else { throw SystemError("listen") }
    }

    /// Whether a connection is in the backlog.
    fileprivate var hasInput: Bool {
        var entry = pollfd(fd: rawValue, events: CShort(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }

    fileprivate func accept() -> AcceptAnswer {
        let flags = CInt(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        // accept4 must return the peer's address, because getpeername fails after the peer resets the
        // connection.
        let connection = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                retryingOnInterrupt { accept4(rawValue, address, &length, flags) }
            }
        }
        guard connection >= 0 else { return AcceptAnswer(failure: errno) }
        let descriptor = SocketDescriptor(adopting: connection)
        guard let peer = SocketEndpoint(storage: &storage, length: length) else {
            return .skipped(SystemError("accept4", errno: EAFNOSUPPORT))
        }
        return .accepted(descriptor, from: peer)
    }
}

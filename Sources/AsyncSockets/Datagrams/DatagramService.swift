// Rules of a UDP socket inside its turn:
//  1. All state is confined to the turn, except `record` and `counts`, which any thread may use.
//  2. Descriptors are opened by callers, under the record's lock, or by `connect` inside the turn. The loop
//     watches them from `attach()` to `close(_:)`.
//  3. An error for a datagram completes an operation or is reported as an event. The socket closes only if
//     the loop cannot watch a descriptor, or a descriptor can no longer receive.
//  4. `close` finishes everything, once: each operation is completed, and `didClose` is the last event.
//  5. Messages only record the work to do. `pump` does the work, once, after all messages have been handled.
//  6. With DTLS (`DatagramUpgrade`), a failure, the peer's close_notify and `disconnect` close the socket.
//     The socket never returns to plaintext.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The work of a UDP socket: the part of `DatagramConnection` that is confined to the turn.
final class DatagramService {
    private enum Phase {
        case open
        /// The socket closes when all queued datagrams have been sent.
        case closing
        case closed(AsyncSocketError?)
    }

    let loop: SocketEventLoop
    let record: Locked<DatagramRecord>
    let counts: DatagramCounts
    /// Set before the first message.
    @exclusivity(unchecked) var registration: LoopRegistration?
    let outbox: EventOutbox<DatagramEvent>
    let output: DatagramOutput
    let input: DatagramInput
    let post: @Sendable (DatagramMessage) -> Void
    @exclusivity(unchecked) private var phase = Phase.open
    @exclusivity(unchecked) var channels: [DatagramChannel] = []
    @exclusivity(unchecked) var peer = DatagramPeer.none
    @exclusivity(unchecked) var attempt: DatagramAttempt?
    /// The claim of the `connect` call that set the peer.
    @exclusivity(unchecked) var claim = 0
    @exclusivity(unchecked) private var waiters = LifecycleWaiters()
    /// DTLS, or `nil` on a plaintext socket.
    @exclusivity(unchecked) var upgrade: DatagramUpgrade?
    @exclusivity(unchecked) var configuration = DatagramConfiguration.initial {
        didSet {
            input.configure(oldValue.value, configuration.value)
            output.configuration = configuration
            journal.configuration = configuration
        }
    }
    @exclusivity(unchecked) private var armedDeadline: Deadline?
    /// Whether the earliest deadline may have changed since `armDeadline()`. A receive without a deadline
    /// that finds no datagram does not set this.
    @exclusivity(unchecked) private var mayHaveDeadline = true
    @exclusivity(unchecked) private var needsPump = false
    @exclusivity(unchecked) private var wantsTurn = false
    /// Whether the descriptor belongs to a listener, which counts the kernel's drops.
    @exclusivity(unchecked) var sharesDescriptor = false
    let journal: DatagramJournal

    init(
        _ outbox: EventOutbox<DatagramEvent>, on loop: SocketEventLoop, _ record: Locked<DatagramRecord>,
        _ counts: DatagramCounts,
        _ log: ConnectionLog, post: @escaping @Sendable (DatagramMessage) -> Void
    ) {
        self.outbox = outbox
        self.loop = loop
        self.record = record
        self.counts = counts
        journal = DatagramJournal(log)
        self.post = post
        output = DatagramOutput(outbox, counts, post: post)
        input = DatagramInput(outbox, counts, post: post)
    }

    var isOver: Bool {
        if case .closed = phase { true } else { false }
    }

    var isClosing: Bool {
        if case .closing = phase { true } else { false }
    }

    /// The error for operations that are requested after the socket has closed, or discarded when it closes.
    var endError: AsyncSocketError {
        if case .closed(let error?) = phase { return error }
        return .closed
    }

    // MARK: - Messages

    func serve(_ message: DatagramMessage) {
        guard !isOver else { return serveAfterEnd(message) }
        needsPump = true
        mayHaveDeadline = true
        switch message {
        case .opened: attach()
        case .events(let events):
            for channel in channels { channel.note(events) }
            if events.contains(.deadline) { expire() }
        case .connect(let target, let claim, let timeout, let waiter): connect(to: target, claim, timeout, waiter)
        case .dissolveAssociation(let claim): if claim == attempt?.claim ?? self.claim { dissolveAssociation() }
        case .resolved(let query, let answer):
            output.lookups.note(answer, to: query)
            goOnConnecting()
        case .send(let packet): enqueue(packet)
        case .refuse(let tag, let error): output.answer(.delegate(tag: tag), error)
        case .judgedSend(let number, let isAccepted): output.noteVerdict(isAccepted, on: number)
        case .judgedReceive(let datagram, let verdict): input.settle(datagram, verdict)
        case .receive(let waiter): input.append(waiter)
        case .exchanging(let exchange, let step): input.serve(exchange, step)
        case .setReceiveMode(let mode): input.setMode(mode)
        case .setSendFilter(let filter): output.setFilter(filter)
        case .setReceiveFilter(let filter): input.setFilter(filter)
        case .configure(let new): if new.value.version > configuration.value.version { configuration = new }
        case .unreachable, .startTLS, .upgrading, .replaced: serveTLS(message)
        case .reportFailures(let reader, let isWanted): input.reportFailures(to: reader, isWanted)
        case .awaitEnd(let waiter): waiters.add(ended: waiter)
        case .cancel(let waiter): cancel(waiter)
        case .closeAfterSending: phase = .closing
        case .close(let error):
            // First sends the datagrams that were queued just before this message.
            _ = output.pump(channels, peer)
            close(error)
        case .roomIsBack, .changeDelegateQueue, .perform, .retire: break
        }
    }

    /// Completes a message's waiter, if any. The delegate has already received its last callback.
    func serveAfterEnd(_ message: DatagramMessage) {
        switch message {
        case .connect(_, _, _, let waiter): waiter?.complete(.failure(endError))
        case .send(let packet): if case .waiter(let waiter) = packet.completion { waiter.complete(.failure(endError)) }
        case .receive(let waiter), .exchanging(_, .awaits(let waiter)): waiter.answer(.failure(endError))
        case .startTLS(let request): request.waiter?.complete(.failure(endError))
        case .upgrading(.awaited(let waiter)): waiter.complete(.failure(endError))
        case .awaitEnd(let waiter): waiter.complete(.success(()))
        case .reportFailures(let reader, _): reader.finish()
        case .opened: closeDescriptors()
        case .exchanging, .events, .dissolveAssociation, .resolved, .refuse, .judgedSend, .judgedReceive, .setReceiveMode,
            .roomIsBack,
            .setSendFilter,
            .setReceiveFilter, .configure, .changeDelegateQueue, .unreachable, .upgrading, .replaced, .cancel,
            .closeAfterSending, .close, .perform, .retire:
            break
        }
    }

    /// Does the same as the message `send`, without an allocation. For calls from a callback.
    func send(_ packet: consuming DatagramPacket) {
        guard !isOver else { return serveAfterEnd(.send(packet)) }
        needsPump = true
        mayHaveDeadline = true
        enqueue(packet)
    }

    private func enqueue(_ packet: consuming DatagramPacket) {
        guard !isClosing else { return output.answer(packet.completion, .closing(.send)) }
        // Another thread may have bound the socket, and its message may not have arrived yet.
        if channels.isEmpty { attach() }
        guard !isOver else { return serveAfterEnd(.send(packet)) }
        output.enqueue(packet, peer)
    }

    /// Completes a waiter with an error, and removes its operation.
    private func cancel(_ waiter: AnyObject, _ error: any Error = CancellationError()) {
        if input.cancel(waiter, error) || output.cancel(waiter, error) { return }
        if let attempt, attempt.waiter === waiter { return finishConnecting(.failure(error)) }
        if let refuse = upgrade?.remove(waiter) {
            // Later datagrams must not be sent in plaintext.
            close(error as? AsyncSocketError)
            // Done last, so that a task that receives the error finds the socket closed.
            return refuse(error)
        }
        waiters.remove(waiter)?(error)
    }

    // MARK: - Descriptors

    /// Starts watching the descriptors that were added to the record, and closes the receivers that were
    /// removed from it.
    func attach() {
        let (own, receivers) = record.withLock { ($0.descriptors, $0.groupReceivers) }
        for channel in channels where channel.onlyReceives && !receivers.contains(channel.descriptor) {
            channel.leave(loop)
            channels.removeAll { $0 === channel }
        }
        for descriptor in own + receivers.descriptors
        where !channels.contains(where: { $0.descriptor.socket === descriptor.socket }) {
            guard let registration else { return }
            let coalesces = descriptor.coalesces ?? configuration.value.reception.contains(.coalescing)
            let channel = DatagramChannel(
                descriptor, maximumSize: configuration.value.maximumReceiveSize, coalesces: coalesces,
                onlyReceives: receivers.contains(descriptor))
            do throws(SystemError) {
                try channel.join(loop, registration)
            } catch {
                return close(AsyncSocketError(error, operation: .watch))
            }
            channels.append(channel)
            note("opened", ["local": descriptor.localAddress.map { "\($0)" } ?? ""])
        }
        if let remote = channels.first?.descriptor.remoteAddress, case .none = peer {
            (peer, claim) = (.connected(InternetAddress(remote)), record.withLock { $0.adoptedClaim })
        }
        // For a socket that is connecting, observation starts once the peer is known.
        if !channels.isEmpty, attempt == nil { journal.begin(peer: peer.socketAddress) }
    }

    /// Closes the record's descriptors, except descriptors of the same address family as `channel`.
    func closeDescriptors(except channel: DatagramChannel? = nil) {
        let withdrawn = record.withLock { $0.withdraw(keeping: channel?.descriptor.families) }
        for other in channels where other !== channel { other.leave(loop) }
        channels = channel.map { [$0] } ?? []
        // Some of these may never have been attached.
        for descriptor in withdrawn { descriptor.socket.close() }
    }

    // MARK: - Work

    /// Performs the work that the messages have requested or made possible.
    func pump() {
        guard needsPump, !isOver else { return }
        needsPump = false
        if channels.contains(where: { $0.hasErrors }) { reportErrors() }
        // On a secure socket, this is done after receiving.
        if upgrade?.isSecure == false, let error = goOnWithTLS() { return close(error) }
        let mayReceive = input.pump(channels, peer.address)
        let maySend = output.pump(channels, peer)
        if upgrade != nil, let error = goOnWithTLS() { return close(error) }
        if !sharesDescriptor { noteDrops(atEnd: false) }
        var hasErrors = false
        for channel in channels where !channel.isSteady {
            if let failure = channel.failure {
                journal.noteEndOfReceiving(failure, peer: peer.socketAddress)
                return close(AsyncSocketError(failure, operation: .receive))
            }
            if channel.hasErrors { hasErrors = true }
            if let denial = channel.takeNewDenial() { journal.noteDenial(denial, peer: peer.socketAddress) }
        }
        if isClosing, output.isEmpty { return close(nil) }
        if !mayReceive, !maySend { upgrade?.layer?.rest() }
        if mayReceive || maySend || hasErrors { wishForTurn() }
    }

    /// Whether the last receive or send left no work for the pump, such as an error, a retry or a reply.
    private var isQuiet: Bool {
        if let upgrade, !upgrade.isQuiet { return false }
        for channel in channels where !channel.isSteady { return false }
        return true
    }

    /// Requests another turn, for work that exceeds this turn or must run on the loop.
    func wishForTurn() {
        wantsTurn = true
    }

    /// Returns whether another turn was requested, and clears the request.
    func takeWish() -> Bool {
        defer { wantsTurn = false }
        return wantsTurn
    }

    /// Sends a task's datagram immediately. Returns `nil` if the datagram must be queued.
    func sendAtOnce(_ bytes: UnsafeRawBufferPointer, to target: DatagramTarget) -> Result<Void, any Error>? {
        mayHaveDeadline = true
        return switch phase {
        case .open: output.sendAtOnce(bytes, to: target, channels, peer)
        case .closing: .failure(AsyncSocketError.closing(.send))
        case .closed: .failure(endError)
        }
    }

    /// Returns a datagram for a task if a datagram is available, and otherwise registers the task. Returns
    /// `nil` if the pump must run.
    func takeOrWait(_ limit: OperationLimit) -> DirectReceive? {
        // Earlier requests must be served first.
        guard !isOver, !needsPump else { return nil }
        let byteCount = input.byteCount
        let answer = input.takeOrWait(channels, peer.address, limit)
        // A descriptor has failed, or DTLS has received a close or a message that requires a reply.
        if !isQuiet { needsPump = true }
        if limit.deadline != nil || input.byteCount != byteCount || needsPump { mayHaveDeadline = true }
        guard case .waits = answer else { return answer }
        if let layer = upgrade?.layer {
            layer.rest()
            if armedDeadline == nil { mayHaveDeadline = true }
        }
        return answer
    }

    private func reportErrors() {
        for channel in channels where channel.hasErrors {
            for error in channel.takeErrors() where error.origin != .local {
                let described = AsyncSocketError(datagram: error.systemError, .send)
                journal.noteFailure(described, peer: peer.socketAddress)
                report(described, about: error.destination ?? peer.socketAddress)
            }
        }
    }

    private func noteDrops(atEnd: Bool) {
        journal.noteDrops(atEnd: atEnd, peer: peer.socketAddress) { record.withLock { $0.countDrops() } }
    }

    // MARK: - Closing

    func close(_ error: AsyncSocketError?, isReplaced: Bool = false) {
        guard !isOver else { return }
        phase = .closed(error)
        noteDrops(atEnd: true)
        record.withLock { record in
            record.isClosed = true
            record.end = error
        }
        finishConnecting(.failure(endError))
        upgrade?.end(endError, isReplaced: isReplaced)
        closeDescriptors()
        output.drop(endError)
        input.drop(endError)
        waiters.answerEnd(endError)
        journal.noteOmittedFailures(peer: peer.socketAddress)
        note("closed", error.map { ["error": "\($0)"] } ?? [:])
        journal.end(error, refusing: upgrade?.refusedRole, CarriedBytes(received: input.byteCount, sent: output.byteCount))
        outbox.append(.didClose(error))
    }

    func note(_ message: String, _ details: @autoclosure () -> [String: String]) {
        journal.note(message, details(), peer: peer.socketAddress)
    }

    // MARK: - Deadlines

    /// Requests an event from the loop at the earliest deadline.
    func armDeadline() {
        guard mayHaveDeadline else { return }
        mayHaveDeadline = false
        let earliest = earliest
        guard !earliest.isNever, let registration else { return }
        // If the earliest deadline has moved later, the old one stays armed. It fires early, and then the
        // next one is armed.
        if let armedDeadline, armedDeadline.isAtMost(earliest) { return }
        armedDeadline = earliest
        loop.setDeadline(earliest, of: registration)
    }

    private var earliest: Deadline {
        var earliest = Deadline.never
        if let deadline = output.deadline { earliest = earliest.earlier(deadline) }
        if let deadline = input.deadline { earliest = earliest.earlier(deadline) }
        if let attempt {
            if let deadline = attempt.deadline { earliest = earliest.earlier(deadline) }
            if let deadline = attempt.waiter?.deadline { earliest = earliest.earlier(deadline) }
        }
        if let deadline = upgrade?.deadline { earliest = earliest.earlier(deadline) }
        if !waiters.isEmpty, let deadline = waiters.deadline { earliest = earliest.earlier(deadline) }
        for channel in channels where !channel.isSteady {
            if let deadline = channel.retry { earliest = earliest.earlier(deadline) }
        }
        return earliest
    }

    private func expire() {
        armedDeadline = nil
        let now = Deadline.now
        for channel in channels { channel.retryIfDue(at: now) }
        if let attempt {
            if let deadline = attempt.deadline, deadline <= now {
                finishConnecting(.failure(AsyncSocketError.timeout(.connectTimeout, .connect, seconds: attempt.seconds)))
            } else if let waiter = attempt.waiter, let deadline = waiter.deadline, deadline <= now {
                finishConnecting(.failure(waiter.lateError))
            }
        }
        // While receiving fails, a timeout is not the peer's fault.
        let denial = channels.lazy.compactMap(\.currentDenial).first.map { AsyncSocketError($0, operation: .receive) }
        output.expire(at: now)
        input.expire(at: now, denial)
        if let error = upgrade?.expire(at: now) { return close(denial ?? error) }
        while let (waiter, error) = upgrade?.lateWaiter(at: now) { cancel(waiter, error) }
        // The socket is idle, or `close(timeout:)` has timed out. Only an idle socket closes with an error.
        while let (waiter, error) = waiters.late(at: now) {
            let refuse = waiters.remove(waiter)
            close(waiter is IdleWaiter ? error as? AsyncSocketError : nil)
            refuse?(error)
        }
    }
}

// Rules of a UDP socket inside its turn:
//  1. Everything here is confined to the turn; `record` and `counts` are for anyone.
//  2. Descriptors are opened by callers, under the lock of the record, or here by `connect`. The loop watches
//     them from `attach()` to `close(_:)`.
//  3. An error of a datagram is an answer or an event. Only a descriptor that the loop cannot watch, or that
//     receives nothing any more, ends the socket.
//  4. `close` ends everything, once: each operation is answered, and `didClose` is the last event.
//  5. Messages change what is to be done, and `pump` does it, once, when all of them are in.
//  6. With DTLS (`DatagramUpgrade`) a failure, the peer's close_notify and `disconnect` close the socket:
//     nothing of it goes on in plaintext.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The work of a UDP socket: the part of `DatagramConnection` that is confined to the turn.
final class DatagramService {
    private enum Phase {
        case open
        /// It closes when all is sent.
        case closing
        case closed(AsyncSocketError?)
    }

    let loop: EventLoop
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
    /// Of the call of `connect` that the peer comes from, in the record.
    @exclusivity(unchecked) var claim = 0
    @exclusivity(unchecked) private var waiters = LifecycleWaiters()
    /// DTLS; nil on a socket in plaintext.
    @exclusivity(unchecked) var upgrade: DatagramUpgrade?
    @exclusivity(unchecked) var configuration = DatagramConfiguration.initial {
        didSet {
            input.configure(oldValue.value, configuration.value)
            output.configuration = configuration
            journal.configuration = configuration
        }
    }
    @exclusivity(unchecked) private var armedDeadline: Deadline?
    /// Something has happened since `armDeadline()`. A task that finds nothing, and has no deadline, is
    /// nothing.
    @exclusivity(unchecked) private var mayHaveDeadline = true
    @exclusivity(unchecked) private var needsPump = false
    @exclusivity(unchecked) private var wantsTurn = false
    /// The listener counts the drops of the kernel.
    @exclusivity(unchecked) var sharesDescriptor = false
    let journal: DatagramJournal

    init(
        _ outbox: EventOutbox<DatagramEvent>, on loop: EventLoop, _ record: Locked<DatagramRecord>, _ counts: DatagramCounts,
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

    /// The error of an operation that comes after the end, or that the end dropped.
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
        case .disconnect(let claim): if claim == attempt?.claim ?? self.claim { disconnect() }
        case .resolved(let query, let answer):
            output.lookups.note(answer, to: query)
            goOnConnecting()
        case .send(let packet): enqueue(packet)
        case .refuse(let tag, let error): output.answer(.delegate(tag: tag), error)
        case .judgedSend(let number, let isAccepted): output.noteVerdict(isAccepted, on: number)
        case .judgedReceive(let datagram, let verdict): input.settle(datagram, verdict)
        case .receive(let waiter): input.append(waiter)
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
            // Gives the kernel what was sent just before.
            _ = output.pump(channels, peer)
            close(error)
        case .roomIsBack, .changeDelegateQueue, .perform, .retire: break
        }
    }

    /// Answers the waiters. The delegate has had its last callback.
    func serveAfterEnd(_ message: DatagramMessage) {
        switch message {
        case .connect(_, _, _, let waiter): waiter?.complete(.failure(endError))
        case .send(let packet): if case .waiter(let waiter) = packet.completion { waiter.complete(.failure(endError)) }
        case .receive(let waiter): waiter.answer(.failure(endError))
        case .startTLS(let request): request.waiter?.complete(.failure(endError))
        case .upgrading(.awaited(let waiter)): waiter.complete(.failure(endError))
        case .awaitEnd(let waiter): waiter.complete(.success(()))
        case .reportFailures(let reader, _): reader.finish()
        case .opened: closeDescriptors()
        case .events, .disconnect, .resolved, .refuse, .judgedSend, .judgedReceive, .setReceiveMode, .roomIsBack, .setSendFilter,
            .setReceiveFilter, .configure, .changeDelegateQueue, .unreachable, .upgrading, .replaced, .cancel,
            .closeAfterSending, .close, .perform, .retire:
            break
        }
    }

    /// The same as the message, for a callback: without an allocation.
    func send(_ packet: consuming DatagramPacket) {
        guard !isOver else { return serveAfterEnd(.send(packet)) }
        needsPump = true
        mayHaveDeadline = true
        enqueue(packet)
    }

    private func enqueue(_ packet: consuming DatagramPacket) {
        guard !isClosing else { return output.answer(packet.completion, .closing("send")) }
        // Another thread may have bound the socket, and not have said so yet.
        if channels.isEmpty { attach() }
        guard !isOver else { return serveAfterEnd(.send(packet)) }
        output.enqueue(packet, peer)
    }

    /// Answers a waiter with an error, and removes what it waited for.
    private func cancel(_ waiter: AnyObject, _ error: any Error = CancellationError()) {
        if input.cancel(waiter, error) || output.cancel(waiter, error) { return }
        if let attempt, attempt.waiter === waiter { return finishConnecting(.failure(error)) }
        if let refuse = upgrade?.remove(waiter) {
            // Later datagrams must not leave in plaintext.
            close(error as? AsyncSocketError)
            // Last, so that a task that gets the error finds the socket closed.
            return refuse(error)
        }
        waiters.remove(waiter)?(error)
    }

    // MARK: - Descriptors

    /// Takes up the descriptors that are new in the record.
    func attach() {
        let descriptors = record.withLock { $0.descriptors }
        for descriptor in descriptors where !channels.contains(where: { $0.descriptor.socket === descriptor.socket }) {
            guard let registration else { return }
            let coalesces = descriptor.coalesces ?? configuration.value.reception.contains(.coalescing)
            let channel = DatagramChannel(
                descriptor, maximumSize: configuration.value.maximumReceiveSize, coalesces: coalesces)
            do throws(SystemError) {
                try channel.join(loop, registration)
            } catch {
                return close(AsyncSocketError(error, operation: "watch"))
            }
            channels.append(channel)
            note("opened", ["local": descriptor.localAddress.map { "\($0)" } ?? ""])
        }
        if let remote = channels.first?.descriptor.remoteAddress, case .none = peer {
            (peer, claim) = (.connected(InternetAddress(remote)), record.withLock { $0.adoptedClaim })
        }
        // One that connects begins with its peer.
        if !channels.isEmpty, attempt == nil { journal.begin(peer: peer.socketAddress) }
    }

    /// Closes what is in the record, or what is not of the family of `channel`.
    func closeDescriptors(except channel: DatagramChannel? = nil) {
        let withdrawn = record.withLock { $0.withdraw(keeping: channel?.descriptor.families) }
        for other in channels where other !== channel { other.leave(loop) }
        channels = channel.map { [$0] } ?? []
        // Those that were never attached.
        for descriptor in withdrawn { descriptor.socket.close() }
    }

    // MARK: - Datagrams

    /// Does what the messages have made possible.
    func pump() {
        guard needsPump, !isOver else { return }
        needsPump = false
        if channels.contains(where: { $0.hasErrors }) { reportErrors() }
        // On a secure socket that comes behind what has arrived.
        if upgrade?.isSecure == false, let error = goOnWithTLS() { return close(error) }
        let mayReceive = input.pump(channels, peer.address)
        let maySend = output.pump(channels, peer)
        if upgrade != nil, let error = goOnWithTLS() { return close(error) }
        if !sharesDescriptor { noteDrops(atEnd: false) }
        var hasErrors = false
        for channel in channels where !channel.isSteady {
            if let failure = channel.failure {
                journal.noteEndOfReceiving(failure, peer: peer.socketAddress)
                return close(AsyncSocketError(failure, operation: "receive"))
            }
            if channel.hasErrors { hasErrors = true }
            if let denial = channel.takeNewDenial() { journal.noteDenial(denial, peer: peer.socketAddress) }
        }
        if isClosing, output.isEmpty { return close(nil) }
        if !mayReceive, !maySend { upgrade?.layer?.rest() }
        if mayReceive || maySend || hasErrors { wishForTurn() }
    }

    /// The pump would find nothing to do: no message has come, and no receive or send has left anything.
    private var isQuiet: Bool {
        if let upgrade, !upgrade.isQuiet { return false }
        for channel in channels where !channel.isSteady { return false }
        return true
    }

    /// Requests another turn, for work that is too much for this one or belongs on the loop.
    func wishForTurn() {
        wantsTurn = true
    }

    /// True, once, when another turn is wanted.
    func takeWish() -> Bool {
        defer { wantsTurn = false }
        return wantsTurn
    }

    /// A task's datagram, sent here and now; nil when it has to be queued.
    func sendAtOnce(_ bytes: UnsafeRawBufferPointer, to target: DatagramTarget) -> Result<Void, any Error>? {
        mayHaveDeadline = true
        return switch phase {
        case .open: output.sendAtOnce(bytes, to: target, channels, peer)
        case .closing: .failure(AsyncSocketError.closing("send"))
        case .closed: .failure(endError)
        }
    }

    /// A datagram for a task, if there is one now; otherwise the task waits. Nil: the pump is needed.
    func takeOrWait(_ limit: OperationLimit) -> DirectReceive? {
        // Earlier requests come first.
        guard !isOver, !needsPump else { return nil }
        let byteCount = input.byteCount
        let answer = input.takeOrWait(channels, peer.address, limit)
        // A descriptor has failed, or DTLS has received its end, or something that needs an answer.
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
                let described = AsyncSocketError(datagram: error.systemError, "send")
                journal.noteFailure(described, peer: peer.socketAddress)
                report(described, about: error.destination ?? peer.socketAddress)
            }
        }
    }

    private func noteDrops(atEnd: Bool) {
        journal.noteDrops(atEnd: atEnd, peer: peer.socketAddress) { record.withLock { $0.countDrops() } }
    }

    // MARK: - The end

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

    // MARK: - Time

    /// Asks the loop for an event at the earliest of the deadlines.
    func armDeadline() {
        guard mayHaveDeadline else { return }
        mayHaveDeadline = false
        let earliest = earliest
        guard !earliest.isNever, let registration else { return }
        // One that has moved later stays armed: it comes early, and the next is armed then.
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
                finishConnecting(.failure(AsyncSocketError.timeout(.connectTimeout, "connect", seconds: attempt.seconds)))
            } else if let waiter = attempt.waiter, let deadline = waiter.deadline, deadline <= now {
                finishConnecting(.failure(waiter.lateError))
            }
        }
        // While the kernel refuses to receive, a timeout is not the peer's fault.
        let denial = channels.lazy.compactMap(\.currentDenial).first.map { AsyncSocketError($0, operation: "receive") }
        output.expire(at: now)
        input.expire(at: now, denial)
        if let error = upgrade?.expire(at: now) { return close(denial ?? error) }
        while let (waiter, error) = upgrade?.lateWaiter(at: now) { cancel(waiter, error) }
        // It waits for the end of a silent socket.
        while let (waiter, error) = waiters.late(at: now) {
            waiters.remove(waiter)?(error)
            close(error as? AsyncSocketError)
        }
    }
}

// Rules of a connection:
//  1. All state below is touched inside the turn only. Anyone may post a message; no one waits.
//  2. This is the only performer: values decide (`TLSUpgrade`, `StreamEnding`, `ReadPacket`, `WriteHalf`),
//     and the connection acts. Bytes move through its `ByteChannel` and nowhere else.
//  3. Messages change what is to be done, and `pumpIfNeeded` does it, once, when all of them are in: what is
//     queued together is served together.
//  4. Events reach the delegate through the `outlet` only, when the pump has done its work. A waiter is
//     answered at once.
//  5. Every operation is answered once: served, refused, cancelled, or dropped by `close`.
//  6. `close` ends everything: queues and buffers are empty afterwards, and `didDisconnect` is the last
//     event.
//  7. The loop keeps the connection alive until it is closed and its last event is on its way.
//  8. Two notions of "over": inside the turn the phase is `.closed`; for callers `ConnectionRecord.isOver` is
//     true, from `disconnect()` on.

internal import Dispatch
internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// One connection, from the attempt to make it to its last event. A socket that connects again gets a new
/// one.
final class StreamConnection: EventHandler, EventSource, TurnOwner, @unchecked Sendable {
    // Unchecked: by rule 1. `registration` and `waitsForClosing` are set before the first message.

    typealias Message = ConnectionMessage

    let log: ConnectionLog
    let loop: EventLoop
    let outlet: EventOutlet<AsyncSocket>
    let record = Locked(ConnectionRecord())
    let board = ProgressBoard()
    let turn: SocketTurn<Message>
    private(set) var registration: LoopRegistration?
    /// Reached at the end, when its descriptor and those of earlier connections are closed.
    let closed = Milestone()
    /// The descriptor of the previous connection is not closed yet. Set before anyone else knows this one.
    @exclusivity(unchecked) var waitsForClosing = false

    // Inside the turn, which also makes accesses exclusive: the check at run time took 8 % of an echo.
    @exclusivity(unchecked) var configuration = SocketConfiguration.initial
    @exclusivity(unchecked) var phase = ConnectionPhase.idle
    @exclusivity(unchecked) var upgrade = TLSUpgrade.plaintext
    @exclusivity(unchecked) var clock: PhaseClock?
    let reads = ReadHalf()
    let writes = WriteHalf()
    @exclusivity(unchecked) var ending = StreamEnding()
    /// Something has changed that may let bytes move. Here, since it fits behind `ending`.
    @exclusivity(unchecked) var needsPump = false
    @exclusivity(unchecked) var waiters = LifecycleWaiters()
    /// The task that the socket belongs to.
    @exclusivity(unchecked) var scope = TaskScope()
    /// What the observer is told; nil when there is none.
    @exclusivity(unchecked) var observation: ConnectionObservation?
    @exclusivity(unchecked) var carried = CarriedBytes()
    @exclusivity(unchecked) var armedDeadline: Deadline?

    init(for socket: AsyncSocket, as role: ConnectionRole, loop: EventLoop) {
        log = ConnectionLog(as: role)
        self.loop = loop
        outlet = EventOutlet(of: socket)
        turn = SocketTurn(queue: socket.socketQueue)
    }

    /// Puts the connection on its loop, which keeps it alive until it is over. Call it once, before the first
    /// message.
    func register() {
        registration = loop.register(self)
    }

    /// Undoes that, while no one else knows the connection.
    func deregister() {
        if let registration { loop.deregister(registration) }
    }

    // MARK: - Anywhere

    func post(_ message: Message) {
        turn.post(message, to: self)
    }

    /// True once no message has anything to do any more.
    var isRetired: Bool { record.withLock { $0.snapshot.isClosed } }

    /// Starts with an accepted descriptor, here and now when this is its loop.
    func begin(with descriptor: SocketDescriptor) {
        turn.post(.adopt(descriptor), to: self, from: loop.isCurrent ? .loop : .caller)
    }

    /// On the loop: `EventHandler`.
    func handle(_ events: LoopEvents) {
        turn.post(.events(events), to: self, from: .loop)
    }

    var logMetadata: Logger.Metadata { log.name(peer: record.withLock { $0.snapshot.remoteAddress }) }

    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }

    func leaveRestToLoop() {
        guard let registration, !loop.isRegistered(registration) else { return askForTurn() }
        // It has left the loop, and the messages left can only learn that it is over.
        DispatchQueue.global().async { [self] in post(.retire) }
    }

    // MARK: - Inside the turn

    /// User code is called in the turn: what it asks for is not a message, and acts at once.
    var isCallingUser: Bool { outlet.isDelivering }

    /// It has ended, even if not everyone knows yet.
    var isOver: Bool {
        if case .closed = phase { true } else { false }
    }

    /// True while this is certainly the socket's connection.
    var isCurrent: Bool { !isOver && !outlet.isSuperseded }

    func receive(_ message: Message) {
        let wasDelivering = outlet.leaveCallback()
        if isOver { serveAfterEnd(message) } else { serve(message) }
        outlet.resumeCallback(wasDelivering)
    }

    private func serve(_ message: Message) {
        switch message {
        case .connect(let destination, let timeout, let waiter):
            waiters.add(connected: waiter)
            connect(to: destination, timeout: timeout)
        case .predecessorIsClosed: beginToConnect()
        case .predecessorHasEnded: outlet.isHeldBack = false
        case .resolved(let answer): didResolve(answer)
        case .attempt(let number, let events): react(to: events, ofAttempt: number)
        case .adopt(let descriptor):
            outlet.isHeldBack = false
            adopt(descriptor)
        case .events(let events): react(to: events)
        case .read(let packet): enqueue(consume packet)
        case .write(let packet): enqueue(consume packet)
        case .startTLS(let request): enqueue(request)
        case .requestClient(let request): begin(request)
        case .verdict(let accepted, let question): decideTrust(accepted, of: question)
        case .chosen(let choice): choose(choice)
        case .worked(let work): takeBack(work)
        case .sendTickets: if case .connected(let channel) = phase { channel.sendTickets() }
        case .verdictOf(let waiter, let accepted, let question):
            waiters.add(secured: waiter, decidesTrust: true)
            decideTrust(accepted, of: question)
        case .awaitEnd(let waiter): waiters.add(ended: waiter)
        case .extendRead(let operation, let seconds): extendRead(operation, by: seconds)
        case .extendWrite(let operation, let seconds): extendWrite(operation, by: seconds)
        case .cancel(let waiter): cancel(waiter)
        case .close(let intent): closeWhenDone(intent)
        case .closeWriteStream: closeWriting()
        case .configure(let configuration): configure(configuration)
        case .changeDelegateQueue: outlet.changeQueue()
        case .fail(let error):
            pumpIfNeeded()
            close(error)
        case .perform(let body):
            pumpIfNeeded()
            publishProgress()
            AsyncSocket.call(body, with: record.withLock { $0.live.descriptor?.rawValue })
        case .retire: break
        }
    }

    /// Answers what still needs an answer when the connection is over.
    private func serveAfterEnd(_ message: Message) {
        switch message {
        case .connect(_, _, let waiter): waiter?.complete(.failure(endError))
        case .read(let packet): refuse(packet.completion)
        case .write(let packet): refuse(packet.completion)
        case .startTLS(let request): request.waiter?.complete(.failure(endError))
        case .requestClient(let request): request.waiter?.complete(.failure(endError))
        case .verdictOf(let waiter, _, _): waiter.complete(.failure(endError))
        case .awaitEnd(let waiter): waiter.complete(.success(()))
        case .predecessorIsClosed: closed.reach()
        case .predecessorHasEnded, .adopt: outlet.isHeldBack = false
        case .changeDelegateQueue: outlet.changeQueue()
        case .perform(let body): AsyncSocket.call(body, with: nil)
        case .retire: retireIfSilent()
        case .resolved, .attempt, .events, .verdict, .chosen, .worked, .sendTickets, .extendRead, .extendWrite, .cancel,
            .close, .closeWriteStream, .configure, .fail:
            break
        }
    }

    private func configure(_ configuration: SocketConfiguration.Shared) {
        guard configuration.value.version > self.configuration.value.version else { return }
        self.configuration = configuration
        if case .connected(let channel) = phase { beginObserving(channel.descriptor) }
        needsPump = true
    }

    func finishTurn(on executor: TurnExecutor) {
        // Nothing to do yet: what is asked for now waits.
        if case .idle = phase { return publishProgress() }
        pumpIfNeeded()
        outlet.deliver(on: executor, for: self)
        publishProgress()
        if isOver { retireIfSilent() } else { armDeadline() }
    }

    func serveRequests() {
        pumpIfNeeded()
    }

    /// Asks the loop for another turn: there is more to do than one turn should do, or it belongs on the
    /// loop.
    func askForTurn() {
        if let registration { loop.resume(registration) }
    }

    /// Leaves the loop once nothing waits to be delivered on it.
    private func retireIfSilent() {
        guard outlet.isEmpty, let registration else { return }
        loop.deregister(registration)
    }

    private func react(to events: LoopEvents) {
        if events.contains(.deadline) { expire() }
        switch phase {
        case .connected(let channel): channel.note(events)
        case .negotiating(let channel, _): channel.note(events)
        case .idle, .opening, .closed: return
        }
        needsPump = true
    }

    // MARK: - The pump

    /// Moves bytes in both directions for as long as there is something to move, within the bounds of a turn.
    func pumpIfNeeded() {
        while needsPump {
            needsPump = false
            switch phase {
            case .connected(let channel): pump(channel)
            case .negotiating(let channel, let tunnel): negotiate(tunnel, over: channel)
            case .idle, .opening, .closed: break
            }
            if writes.waitingByteCount > 0 { reportHighWater() }
            while let waiter = writes.takeWaiter(below: configuration.value.writeHighWaterMark) { waiter.complete(.success(())) }
        }
    }

    private func reportHighWater() {
        if let count = writes.takeHighWater(configuration.value.writeHighWaterMark) { outlet.append(.highWater(count)) }
    }

    private func pump(_ channel: ByteChannel) {
        repeat {
            if upgrade.isOpenForData { exchange(channel) }
        } while !isOver && advanceUpgrade(channel)
        if !isOver { finishPump(channel) }
    }

    private func exchange(_ channel: ByteChannel) {
        pumpWrites(channel)
        pumpReads(channel)
        // A half-received message of the peer holds up writes; reading may have completed it.
        if channel.isHeldUp { pumpWrites(channel) }
    }

    private func pumpWrites(_ channel: ByteChannel) {
        guard !writes.isEmpty || channel.hasUnsentBytes else { return }
        for _ in 0..<ByteChannel.roundsPerTurn {
            let answer = submit(to: channel)
            if !channel.hasUnsentBytes { completeWrites() }
            guard case .more = answer else { return }
        }
        askForTurn()
    }

    /// Serves reads and fetches what they lack, round by round.
    private func pumpReads(_ channel: ByteChannel) {
        guard channel.mayHaveBytes || reads.mayServe else { return }
        for _ in 0..<ByteChannel.roundsPerTurn {
            serveReads()
            guard !isOver, reads.wantsBytes else { return }
            switch fill(from: channel) {
            case .bytes: break
            case .nothing: return
            case .more: return askForTurn()
            }
        }
        serveReads()
        if !isOver, reads.wantsBytes { askForTurn() }
    }

    // MARK: - The end

    /// After the pumps: starts the clocks of the current operations, and checks whether the connection ends.
    private func finishPump(_ channel: ByteChannel) {
        if writes.isClosing, writes.isEmpty, !ending.isWritingFinished, channel.finishWriting() {
            ending.note(.finishedWriting)
        }
        if channel.hasNews { channel.report(to: &ending) }
        if ending.mayDecide { end(channel) }
        reads.startClock()
        writes.startClock()
    }

    /// Does what `StreamEnding` decides, until it has no more to decide.
    private func end(_ channel: ByteChannel) {
        while !isOver, let action = ending.decide(situation(channel)) {
            switch action {
            case .completeReadToEnd:
                if let (data, completion) = reads.finishReadToEnd() { answer(completion, with: data) }
            case .abandonRead(let error):
                abandonRead(error)
                // What it leaves may be enough for the next.
                serveReads()
            case .reportClosedReadSide: outlet.append(.didCloseReadStream)
            case .askKernel: if let error = channel.takeError() { close(error) }
            case .close(let error): close(error)
            }
        }
    }

    private func situation(_ channel: ByteChannel) -> StreamEnding.Situation {
        let waiting: StreamEnding.Situation.Reads =
            switch reads.front {
            case .read: reads.isAtReadToEnd ? .waitingForEnd : .waiting
            case .startTLS: .atStartTLS
            case .nothing: .idle
            }
        return StreamEnding.Situation(
            reads: waiting, hasUnreadBytes: reads.hasUnreadBytes, readLeavesBytes: reads.wouldLeaveBytes,
            mayReceive: ending.readEnd == nil && reads.wantsBytes && channel.mayReceive,
            hasWrites: !writes.isEmpty,
            allowsHalfClose: !configuration.value.autoDisconnectOnClosedReadStream,
            gracePeriod: configuration.value.failedWriteGrace)
    }

    /// An empty intent: at once.
    private func closeWhenDone(_ intent: CloseIntent) {
        guard intent.isEmpty else {
            ending.note(.wanted(intent))
            needsPump = true
            return
        }
        // Gives the kernel what was written just before. An error here no longer matters.
        if needsPump, case .connected(let channel) = phase, upgrade.isOpenForData { pumpWrites(channel) }
        close(nil)
    }

    /// Ends everything, once: the descriptor, the queues, the buffers, the engine. `didDisconnect` is the
    /// last event.
    func close(_ error: AsyncSocketError?) {
        let ended = phase
        if case .closed = ended { return }
        phase = .closed(error)
        // From here on no one else can reach the descriptor, and for callers too it is over.
        let withdrawn = record.withLock { $0.close() }
        endObserving(ended, error)
        switch ended {
        case .opening(let opening): opening.cancel()
        case .negotiating(let channel, _): channel.close(.atOnce, on: loop)
        case .connected(let channel):
            if channel.hasNews { channel.report(to: &ending) }
            channel.close(ending.parting(with: error), on: loop)
        case .idle, .closed: break
        }
        withExtendedLifetime(withdrawn) {}
        dropEverything()
        note("closed", error.map { ["error": "\($0)"] } ?? [:])
        // Before anyone who learns of the end can ask.
        publishProgress()
        outlet.append(.didDisconnect(error))
        if !waitsForClosing { closed.reach() }
    }

    private func dropEverything() {
        clock = nil
        upgrade = .plaintext
        needsPump = false
        // A connection on which nothing waited frees nothing worth a note.
        let waiting = writes.waitingMemoryByteCount + reads.preBuffer.count
        if waiting > 0 { HeapTrimmer.shared.noteFreed(waiting) }
        if !reads.preBuffer.isEmpty { record.withLock { $0.snapshot.hasDroppedBytes = true } }
        reads.preBuffer.reset()
        while let completion = reads.drop() { refuse(completion) }
        dropWrites()
        waiters.answerEnd(endError)
    }

    /// The error of an operation that comes after the end, or that the end dropped.
    var endError: AsyncSocketError {
        if case .closed(let error?) = phase { return error }
        return .closed
    }

    /// Logs what happened, at the level `debug`, and never what was read or written.
    func note(_ message: String, _ details: @autoclosure () -> [String: String] = [:]) {
        guard ConnectionLog.isWritten(by: configuration) else { return }
        log.write(message, details(), peer: record.withLock { $0.snapshot.remoteAddress }, configuration.value.logger)
    }
}

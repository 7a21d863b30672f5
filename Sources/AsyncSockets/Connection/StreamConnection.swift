// Rules of a connection:
//  1. All state below is touched inside the turn only. Anyone may post a message; nothing waits.
//  2. Each part owns its state: `Establishing` the way to a descriptor, `DataPath` the bytes, `Upgrade` TLS.
//     A part returns that the connection is to end, and the connection does it.
//  3. Messages change what is to be done, and `pumpIfNeeded` does it, once, when all of them are in: what is
//     queued together is served together.
//  4. Events reach the delegate through the `outlet` only, when the pump has done its work. A waiter is
//     answered at once.
//  5. Every operation is answered once: served, refused, cancelled, or dropped by `close`.
//  6. `close` ends everything: queues and buffers are empty afterwards, and `didDisconnect` is the last
//     event.
//  7. The loop keeps the connection alive until it is closed and its last event is on its way.
//  8. Two notions of "over": inside the turn the phase is `.closed`; for callers `ConnectionRecord.isOver` is
//     true, from `disconnect()` on. The turn does not read the facts that it publishes.

internal import Dispatch
internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// One connection, from the attempt to make it to its last event. A socket that connects again gets another.
final class StreamConnection: EventHandler, EventSource, OperationOwner, PartOwner, TurnOwner, @unchecked Sendable {
    // Unchecked: by rule 1. `registration` and `waitsForClosing` are set before the first message.
    typealias Message = ConnectionMessage

    // In an order that takes little room: these three share 24 bytes.
    let log: ConnectionLog
    /// The descriptor of the previous connection is not closed yet. Set before anyone else knows this one.
    @exclusivity(unchecked) var waitsForClosing = false
    private var registration: LoopRegistration?
    let loop: EventLoop
    let outlet: EventOutlet<AsyncSocket>
    let data: DataPath
    let record = Locked(ConnectionRecord())
    private let board = ProgressBoard()
    let turn: SocketTurn<Message>
    /// Reached at the end, when its descriptor and the descriptors of earlier connections are closed.
    let closed = Milestone()

    // Inside the turn, which also makes accesses exclusive: the check at run time took 8 % of an echo.
    @exclusivity(unchecked) private(set) var phase = ConnectionPhase.idle
    @exclusivity(unchecked) private(set) var upgrade: Upgrade?
    @exclusivity(unchecked) private(set) var waiters = LifecycleWaiters()
    /// The task that the socket belongs to.
    @exclusivity(unchecked) var scope = TaskScope()
    @exclusivity(unchecked) private(set) var observation: ConnectionObservation?
    @exclusivity(unchecked) private var armedDeadline = Deadline.never

    init(for socket: AsyncSocket, as role: ConnectionRole, loop: EventLoop) {
        log = ConnectionLog(as: role)
        self.loop = loop
        outlet = EventOutlet(of: socket)
        data = DataPath(outlet)
        turn = SocketTurn(queue: socket.socketQueue)
    }

    /// Puts the connection on its loop, which keeps it alive until it is over. Call it once, before the first
    /// message.
    func register() { registration = loop.register(self) }
    /// Undoes that, while nothing else knows the connection.
    func deregister() { if let registration { loop.deregister(registration) } }

    // MARK: - Anywhere
    func post(_ message: Message) { turn.post(message, to: self) }
    @inline(never) func giveUp(_ waiter: any AnyObject & Sendable) { post(.cancel(waiter)) }

    @inline(__always) func read(_ packet: consuming ReadPacket) {
        guard isOpenToCallback else { return post(.read(consume packet)) }
        let wasDelivering = outlet.leaveCallback()
        data.enqueue(packet)
        outlet.resumeCallback(wasDelivering)
    }

    func write(_ packet: consuming WritePacket) {
        guard isOpenToCallback else { return post(.write(consume packet)) }
        let wasDelivering = outlet.leaveCallback()
        enqueue(packet)
        outlet.resumeCallback(wasDelivering)
    }

    func flush() { turn.postBehindAll(.flush, to: self) }

    /// True when the delegate is being called here, and what it asks for can be done without a message.
    var isOpenToCallback: Bool { turn.isOpen(within: self) && !isOver }

    /// The progress of the oldest operations: current in an inline callback, otherwise as of the end of the
    /// last turn.
    var progress: ProgressBoard.Snapshot { turn.isCallingUser(of: self) ? data.progress : board.snapshot }

    /// True once no message has anything to do any more.
    var isRetired: Bool { record.withLock { $0.snapshot.isClosed } }

    /// Starts with an accepted descriptor, here and now when this is its loop.
    func begin(with descriptor: SocketDescriptor) {
        turn.post(.adopt(descriptor), to: self, from: loop.isCurrent ? .loop : .caller)
    }

    /// On the loop: `EventHandler`.
    func handle(_ events: LoopEvents) {
        // Mostly nothing else is under way, and a message would cost more than what it says.
        guard !events.contains(.deadline), turn.enterIfFree() else { return turn.post(.events(events), to: self, from: .loop) }
        if !isOver { data.note(events) }
        turn.leaveOrDrain(self, asking: finishTurn(on: .loop), on: .loop)
    }

    var logMetadata: Logger.Metadata { log.name(peer: record.remoteAddress) }
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
    var isOver: Bool { phase.isClosed }
    /// True while this is certainly the socket's connection.
    var isCurrent: Bool { !isOver && !outlet.isSuperseded }
    /// Bytes may move, in plaintext or encrypted.
    var isOpenForData: Bool { upgrade?.state.isOpenForData ?? true }
    var events: EventOutbox<DelegateEvent> { outlet }
    var configuration: SocketConfiguration.Shared { data.configuration }

    func receive(_ message: Message) {
        let wasDelivering = outlet.leaveCallback()
        if isOver { serveAfterEnd(message) } else { serve(message) }
        outlet.resumeCallback(wasDelivering)
    }

    private func serve(_ message: Message) {
        switch message {
        case .connect(let destination, let timeout, let waiter):
            waiters.add(connected: waiter)
            let establishing = Establishing(to: destination, timeout: timeout, on: loop)
            phase = .establishing(establishing)
            if !waitsForClosing { follow(establishing.begin(data, self)) }
        case .predecessorIsClosed:
            waitsForClosing = false
            follow(phase.establishing?.begin(data, self))
        case .predecessorHasEnded: outlet.isHeldBack = false
        case .establishing(let news): follow(phase.establishing?.receive(news, data, self))
        case .adopt(let descriptor):
            outlet.isHeldBack = false
            follow(Establishing.adopt(descriptor, data, self))
        case .events(let events):
            if events.contains(.deadline) { expire() }
            data.note(events)
        case .read(let packet): data.accept(consume packet)
        case .write(let packet): enqueue(consume packet)
        case .startTLS(let request): follow(Upgrade.begin(request, &upgrade, data))
        case .requestClient(let request): Upgrade.begin(request, after: upgrade, data, self)
        case .upgrading(let news): upgrade?.receive(news, data, self)
        case .awaitEnd(let waiter): waiters.add(ended: waiter)
        case .extendRead(let number, let seconds): follow(data.extendRead(number, by: seconds))
        case .extendWrite(let number, let seconds): follow(data.extendWrite(number, by: seconds))
        case .cancel(let waiter): cancel(waiter)
        case .close(let intent): if intent.isAtOnce { close(nil, isAbandoned: !intent.isEmpty) } else { data.close(intent) }
        case .closeWriteStream: data.closeWriting()
        case .flush: sendWritten()
        case .configure(let configuration): configure(configuration)
        case .changeDelegateQueue: outlet.changeQueue()
        case .fail(let error):
            pumpIfNeeded()
            close(error)
        case .perform(let body):
            sendWritten()
            pumpIfNeeded()
            publishProgress()
            AsyncSocket.call(body, with: record.withLock { $0.live.descriptor?.rawValue })
        case .retire: break
        }
    }

    /// Answers what still needs an answer when the connection is over.
    private func serveAfterEnd(_ message: Message) {
        switch message {
        case .predecessorIsClosed: closed.reach()
        case .predecessorHasEnded: outlet.isHeldBack = false
        case .adopt:
            outlet.isHeldBack = false
            let observer = record.withLock { $0.claims.isDisconnected } ? nil : configuration.value.observer
            ConnectionObservation.deliverUnkept(log.observed(record.remoteAddress), data.carried, to: observer)
        case .awaitEnd(let waiter): waiter.complete(.success(()))
        case .changeDelegateQueue: outlet.changeQueue()
        case .perform(let body): AsyncSocket.call(body, with: nil)
        case .retire: retireIfSilent()
        case .connect, .establishing, .events, .read, .write, .startTLS, .requestClient, .upgrading, .extendRead,
            .extendWrite, .cancel, .close, .closeWriteStream, .flush, .configure, .fail:
            message.refuse(phase.endError)
        }
    }

    private func configure(_ configuration: SocketConfiguration.Shared) {
        guard configuration.value.version > self.configuration.value.version else { return }
        data.configuration = configuration
        if phase.isEstablished { beginObserving(nil) }
        data.needsPump = true
    }

    private func enqueue(_ packet: consuming WritePacket) {
        if data.limit(passedBy: packet) != nil {
            sendWritten()
            pumpIfNeeded()
            if let limit = data.limit(passedBy: packet) { close(.writeQueueFull(limit)) }
            if isOver { return packet.completion.refuse(phase.endError) }
        }
        guard let completion = data.enqueue(packet) else { return }
        close(.writeQueueFull(.max))
        completion.refuse(phase.endError)
    }

    /// Answers a waiter with `error`. If it waits for a step in the life of the connection, the connection
    /// closes.
    private func cancel(_ waiter: AnyObject, _ error: any Error = CancellationError()) {
        if data.cancel(waiter, error) { return }
        guard let refuse = waiters.remove(waiter) ?? upgrade?.remove(waiter) else { return }
        close(error as? AsyncSocketError)
        // Last: a task that learns of it may connect again at once.
        refuse(error)
    }

    func finishTurn(on executor: TurnExecutor) -> Bool {
        // An idle connection has nothing to do yet: operations stay in their queues.
        if !phase.isIdle {
            pumpIfNeeded()
            outlet.deliver(on: executor, for: self)
        }
        board.publish(data.progress)
        if isOver { retireIfSilent() } else if !phase.isIdle { armDeadline() }
        return data.takeWish()
    }

    /// For a task that has entered the turn, perhaps for an operation with a limit. Mostly nothing is to do.
    func leaveTurn(_ limit: OperationLimit?) {
        let isQuiet = !data.needsPump && outlet.isEmpty
        if isQuiet, limit?.deadline != nil { armDeadline() }
        turn.leaveOrDrain(self, asking: !isQuiet && finishTurn(on: .caller))
    }

    @inline(__always) func serveRequests() { pumpIfNeeded() }
    func endCallbacks() {
        if data.needsPump || data.isCollecting { sendWritten() }
        if data.needsPump { wishForTurn() }
    }
    /// On the loop: the job of a task is over.
    func codeHasReturned() {
        outlet.collector.close()
        post(.flush)
    }
    private func sendWritten() { if phase.isEstablished, isOpenForData { data.flush() } }
    func publishProgress() { board.publish(data.progress) }

    func wishForTurn() { data.wishForTurn() }
    func askForTurn() { if let registration { loop.resume(registration) } }

    /// Leaves the loop once nothing waits to be delivered on it.
    private func retireIfSilent() {
        guard outlet.isEmpty, let registration else { return }
        loop.deregister(registration)
    }

    // MARK: - Establishing
    func watch(_ descriptor: SocketDescriptor) throws(SystemError) {
        if let registration { try loop.watch(descriptor, for: registration) }
    }

    private func follow(_ outcome: Establishing.Outcome?) {
        switch outcome {
        case .goesOn, nil: break
        case .more: wishForTurn()
        case .established(let event, let peer): establish(with: peer, event)
        case .adopted: establish(with: record.remoteAddress, nil)
        case .fails(let error): close(error)
        }
    }

    /// The channel leads to the peer. Answers the waiter for the connection, or delivers the event.
    private func establish(with peer: SocketAddress?, _ event: DelegateEvent?) {
        guard let descriptor = data.channel?.descriptor else { return }
        phase = .established
        beginObserving(peer)
        if let error = record.introduce(connected: descriptor, to: peer) { return close(error) }
        note("connected", [:])
        data.needsPump = true
        if let event, !waiters.answerConnected() { outlet.append(event) }
    }

    // MARK: - The pump
    /// Moves bytes in both directions for as long as there is something to move, within the bounds of a turn.
    @inline(__always) func pumpIfNeeded() {
        while data.needsPump {
            data.needsPump = false
            if phase.isEstablished { pump() } else { follow(phase.establishing?.negotiate(data)) }
            data.watchMark()
        }
        if data.isCollecting { outlet.noteCollecting(self) }
    }

    @inline(__always) private func pump() {
        // First without a reference that is counted.
        guard upgrade != nil, let upgrade, !upgrade.state.isSettled else { return follow(data.pump()) }
        repeat {
            if isOpenForData { follow(data.exchange()) }
        } while !isOver && advanceUpgrade()
        if !isOver { follow(data.settle()) }
    }

    private func follow(_ fate: DataPath.Fate) { if case .ends(let error) = fate { close(error, isAbandoned: error != nil) } }

    /// Goes on towards TLS; true when that has changed what can be done.
    private func advanceUpgrade() -> Bool {
        guard let upgrade, !upgrade.state.isSettled else { return false }
        switch upgrade.advance(data, self) {
        case .waits: break
        case .moved: return true
        case .more: wishForTurn()
        case .fails(let error): close(error)
        }
        return false
    }

    // MARK: - Time
    /// Asks the loop for an event at the earliest of the deadlines.
    private func armDeadline() {
        guard hasDeadline, let earliest = earliestDeadline else { return }
        // A deadline that has moved later stays armed: it comes early, finds nothing expired, and the next
        // one is armed then.
        guard earliest < armedDeadline, let registration else { return }
        armedDeadline = earliest
        loop.setDeadline(earliest, of: registration)
    }

    /// False on most connections most of the time.
    private var hasDeadline: Bool {
        data.hasDeadline || !waiters.isEmpty || !phase.isEstablished || upgrade?.hasDeadline == true
    }

    private var earliestDeadline: Deadline? {
        let operations = Deadline.earlier(data.deadline, waiters.deadline)
        return .earlier(operations, .earlier(phase.establishing?.deadline, upgrade?.deadline))
    }

    private func expire() {
        armedDeadline = .never
        let now = Deadline.now
        follow(phase.establishing?.expire(at: now, data, self))
        if let upgrade { follow(upgrade.expire(at: now, data, self)) }
        data.expire(at: now, self)
        while let (waiter, error) = waiters.late(at: now) ?? upgrade?.lateWaiter(at: now) {
            let named = (error as? AsyncSocketError).flatMap { phase.establishing?.naming($0) }
            cancel(waiter, named ?? error)
        }
    }

    // MARK: - The end
    /// Ends the descriptor, the queues, the buffers and the engine, once. `didDisconnect` is the last event.
    /// - Parameter isAbandoned: Whether the program did not end the connection, and misses its queued bytes.
    private func close(_ error: AsyncSocketError?, isAbandoned: Bool = true) {
        let ended = phase
        guard !ended.isClosed else { return }
        sendWritten()
        phase = .closed(error)
        // From here on nothing else can reach the descriptor, and for callers too it is over.
        let withdrawn = record.withLock { $0.close() }
        // Before the descriptor is closed: its permit may let in another connection, which begins later.
        if let observation = observation.take() {
            observation.end(error, refusing: upgrade?.state.refusedRole, data.carried)
        } else if ended.establishing != nil {
            ConnectionObservation.deliverFailure(error, to: configuration.value.observer)
        }
        ended.establishing?.cancel()
        data.closeChannel(error, isEstablished: ended.isEstablished, isAbandoned: isAbandoned, on: loop)
        withExtendedLifetime(withdrawn) {}
        if let loss = data.drop(error) { record.withLock { $0.snapshot.loss = CopyOnWrite(loss) } }
        waiters.answerEnd(phase.endError)
        upgrade.take()?.refuseAll(phase.endError)
        note("closed", error.map { ["error": "\($0)"] } ?? [:])
        // Before anyone who learns of the end can ask.
        publishProgress()
        outlet.append(.didDisconnect(error))
        if !waitsForClosing { closed.reach() }
    }

    func note(_ message: String, _ details: @autoclosure () -> [String: String]) {
        guard ConnectionLog.isWritten(by: configuration) else { return }
        log.write(message, details(), peer: record.remoteAddress, configuration.value.logger)
    }

    /// The connection is established, or has got an observer since: it begins for its observer, once.
    private func beginObserving(_ peer: SocketAddress?) {
        guard observation == nil, let observer = configuration.value.observer else { return }
        observation = ConnectionObservation(log.observed(record.remoteAddress ?? peer), by: observer)
    }
}

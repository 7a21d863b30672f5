// Rules of a connection:
//  1. All state below is accessed only inside the turn. Any thread may post a message, and no thread blocks.
//  2. Each part owns its state: `Establishing` owns the attempts to connect, `DataPath` owns the bytes, and
//     `HandshakeDriver` owns TLS. A part reports that the connection must close, and it closes itself.
//  3. Messages record work. `pumpIfNeeded` does it once, so operations queued together are served together.
//  4. Events reach the delegate only through the `outlet`, after the pump. Waiters complete immediately.
//  5. Every operation is completed once: served, refused, cancelled, or dropped by `close`.
//  6. `close` closes or drops everything. Afterwards all queues are empty, and `didDisconnect` is the last
//     event.
//  7. The loop keeps the connection alive until it is closed and its last event has been passed on.
//  8. "Over" has two meanings: inside the turn, it means that the phase is `.closed`; for callers,
//     `ConnectionRecord.isOver` becomes true as soon as `disconnect()` is called. The turn never reads the
//     state that it publishes.

internal import Dispatch
internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// One connection, from the first attempt to its last event. A socket that reconnects creates a new one.
final class StreamConnection: EventHandler, EventSource, OperationOwner, PartOwner, TurnOwner, @unchecked Sendable {
    // Unchecked: by rule 1. `registration` and `waitsForClosing` are set before the first message.
    typealias Message = ConnectionMessage

    // Ordered to save space: the next three properties share 24 bytes.
    let log: ConnectionLog
    /// Whether the previous connection's descriptor is still open. Set before other code has a reference.
    @exclusivity(unchecked) var waitsForClosing = false
    private var registration: LoopRegistration?
    let loop: SocketEventLoop
    let outlet: EventOutlet<AsyncSocket>
    let data: DataPath
    let record = Locked(ConnectionRecord())
    private let board = ProgressBoard()
    let turn: SocketTurn<Message>
    /// Reached after the close, when this descriptor and the descriptors of earlier connections are closed.
    let closed = Milestone()

    // Confined to the turn, which also makes accesses exclusive. Run-time checks slowed an echo by 8%.
    @exclusivity(unchecked) private(set) var phase = ConnectionPhase.idle
    @exclusivity(unchecked) private(set) var upgrade: HandshakeDriver?
    @exclusivity(unchecked) private(set) var waiters = LifecycleWaiters()
    /// The task that owns the connection.
    @exclusivity(unchecked) var scope = TaskScope()
    @exclusivity(unchecked) private(set) var observation: ConnectionObservation?
    @exclusivity(unchecked) private var armedDeadline = Deadline.never

    init(for socket: AsyncSocket, as role: ConnectionRole, loop: SocketEventLoop) {
        log = ConnectionLog(as: role)
        self.loop = loop
        outlet = EventOutlet(of: socket)
        data = DataPath(outlet)
        turn = SocketTurn(queue: socket.socketQueue)
    }

    /// Registers the connection with its loop, which keeps it alive until it is closed. Call this once,
    /// before the first message.
    func register() { registration = loop.register(self) }
    /// Undoes `register()`. Allowed only while no other code has a reference to the connection.
    func deregister() { if let registration { loop.deregister(registration) } }

    // MARK: - Callable from any thread
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

    /// Whether the delegate is being called on this thread and its requests can be served without a message.
    var isOpenToCallback: Bool { turn.isOpen(within: self) && !isOver }

    /// The progress of the oldest operations: current in an inline callback, otherwise as of the end of the
    /// last turn.
    var progress: ProgressBoard.Snapshot { turn.isCallingUser(of: self) ? data.progress : board.snapshot }

    /// Whether messages no longer have any effect.
    var isRetired: Bool { record.withLock { $0.snapshot.isClosed } }

    /// Starts with an accepted descriptor, immediately if the caller runs on this connection's loop.
    func begin(with descriptor: SocketDescriptor) {
        turn.post(.adopt(descriptor), to: self, from: loop.isCurrent ? .loop : .caller)
    }

    func handle(_ events: LoopEvents) {
        // Usually the turn is free, and posting a message would cost more than handling the events.
        guard !events.contains(.deadline), turn.enterIfFree() else { return turn.post(.events(events), to: self, from: .loop) }
        if !isOver { data.note(events) }
        turn.leaveOrDrain(self, asking: finishTurn(on: .loop), on: .loop)
    }

    var logMetadata: Logger.Metadata { log.name(peer: record.remoteAddress) }
    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }

    func leaveRestToLoop() {
        guard let registration, !loop.isRegistered(registration) else { return askForTurn() }
        // The connection is no longer registered. The remaining messages fail, because it is closed.
        DispatchQueue.global().async { [self] in post(.retire) }
    }

    // MARK: - Inside the turn
    /// Whether user code is being called inside the turn. Its requests take effect without a message.
    var isCallingUser: Bool { outlet.isDelivering }

    /// Whether the connection is closed, even if not all callers have been notified.
    var isOver: Bool { phase.isClosed }
    /// Whether this is certainly still the socket's connection.
    var isCurrent: Bool { !isOver && !outlet.isSuperseded }
    /// Whether bytes may move, in plaintext or encrypted.
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
        case .startTLS(let request): follow(HandshakeDriver.begin(request, &upgrade, data))
        case .requestClient(let request): HandshakeDriver.begin(request, after: upgrade, data, self)
        case .upgrading(let news): upgrade?.receive(news, data, self)
        case .awaitEnd(let waiter): waiters.add(ended: waiter)
        case .extendRead(let number, let seconds): follow(data.extendRead(number, by: seconds))
        case .extendWrite(let number, let seconds): follow(data.extendWrite(number, by: seconds))
        case .cancel(let waiter): cancel(waiter)
        case .close(let intent): if intent.isAtOnce { close(nil, intent) } else { data.close(intent) }
        case .closeWriteStream: data.closeWriting()
        case .flush: sendWritten()
        case .configure(let configuration): configure(configuration)
        case .changeDelegateQueue: outlet.changeQueue()
        case .fail(let error):
            pumpIfNeeded()
            close(error)
        case .giveWay(let error) where mustGiveWay(): close(error, [.abandoned, .reset])
        case .perform(let body):
            sendWritten()
            pumpIfNeeded()
            publishProgress()
            AsyncSocket.call(body, with: record.withLock { $0.live.descriptor?.rawValue })
        case .giveWay, .retire: break
        }
    }

    /// Handles a message after the connection has closed, and completes its operation.
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
            .extendWrite, .cancel, .close, .closeWriteStream, .flush, .configure, .fail, .giveWay:
            message.refuse(phase.endError)
        }
    }

    private func configure(_ configuration: SocketConfiguration.Shared) {
        guard configuration.value.version > self.configuration.value.version else { return }
        data.configure(configuration)
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
        if phase.isEstablished, isOpenForData, data.beginJoining(packet) { return }
        guard let completion = data.enqueue(packet) else { return }
        close(.writeQueueFull(.max))
        completion.refuse(phase.endError)
    }

    /// Completes a waiter with `error`. If the waiter is for a lifecycle step, the connection closes.
    private func cancel(_ waiter: AnyObject, _ error: any Error = CancellationError()) {
        if data.cancel(waiter, error) { return }
        guard let refuse = waiters.remove(waiter) ?? upgrade?.remove(waiter) else { return }
        close(error as? AsyncSocketError)
        // Last, because the resumed task may reconnect immediately.
        refuse(error)
    }

    func finishTurn(on executor: TurnExecutor) -> Bool {
        // An idle connection has no work yet, and operations stay in their queues.
        if !phase.isIdle {
            pumpIfNeeded()
            outlet.deliver(on: executor, for: self)
        }
        board.publish(data.progress)
        defer { if isOver { retireIfSilent() } else if !phase.isIdle { armDeadline() } }
        return data.endTurn()
    }

    /// Exits the turn after a task's operation, which may have a limit. Usually no more work is left.
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
    /// Called on the loop when the job of a task has returned.
    func codeHasReturned() {
        outlet.collector.close()
        post(.flush)
    }
    private func sendWritten() { if phase.isEstablished, isOpenForData { data.flush() } }
    func publishProgress() { board.publish(data.progress) }

    func wishForTurn() { data.wishForTurn() }
    func askForTurn() { if let registration { loop.resume(registration) } }

    /// Deregisters from the loop when no events are waiting to be delivered on it.
    private func retireIfSilent() {
        guard outlet.isEmpty, let registration else { return }
        loop.deregister(registration)
    }

    // MARK: - Establishing
    func watch(_ descriptor: SocketDescriptor) throws(SystemError) {
        if let registration { try loop.watch(descriptor, for: registration) }
    }

    private func follow(_ step: Establishing.Step?) {
        switch step {
        case .incomplete, nil: break
        case .more: wishForTurn()
        case .established(let event, let peer): establish(with: peer, event)
        case .adopted: establish(with: record.remoteAddress, nil)
        case .fails(let error): close(error)
        }
    }

    /// Called when the channel is connected to the peer. Completes the waiter for the connection, or
    /// delivers the event.
    private func establish(with peer: SocketEndpoint?, _ event: DelegateEvent?) {
        guard let descriptor = data.channel?.descriptor else { return }
        phase = .established
        beginObserving(peer)
        if let error = record.introduce(connected: descriptor, to: peer) { return close(error) }
        note("connected", [:])
        data.needsPump = true
        if let event, !waiters.answerConnected() { outlet.append(event) }
    }

    // MARK: - The pump
    @inline(__always) func pumpIfNeeded() {
        while data.needsPump {
            data.needsPump = false
            if phase.isEstablished { pump() } else { follow(phase.establishing?.negotiate(data)) }
            data.watchMark()
        }
        if data.isCollecting { outlet.noteCollecting(self) }
    }

    @inline(__always) private func pump() {
        // The first test avoids reference counting.
        guard upgrade != nil, let upgrade, !upgrade.state.isSettled else { return follow(data.pump()) }
        repeat {
            if isOpenForData { follow(data.exchange()) }
        } while !isOver && advanceUpgrade()
        if !isOver { follow(data.settle()) }
    }

    private func follow(_ step: DataPath.Step) { if case .ends(let end) = step { close(end, end == nil ? [] : .abandoned) } }

    /// Advances the TLS upgrade. Returns `true` if bytes may be able to move now.
    private func advanceUpgrade() -> Bool {
        guard let upgrade, !upgrade.state.isSettled else { return false }
        switch upgrade.advance(data, self) {
        case .incomplete: break
        case .moved: return true
        case .more: wishForTurn()
        case .fails(let error): close(error)
        }
        return false
    }

    // MARK: - Deadlines
    /// Requests an event from the loop at the earliest deadline.
    private func armDeadline() {
        guard hasDeadline, let earliest = earliestDeadline else { return }
        // A postponed deadline stays armed. The early event finds no expired operation and arms the next
        // one.
        guard earliest < armedDeadline, let registration else { return }
        armedDeadline = earliest
        loop.setDeadline(earliest, of: registration)
    }

    /// `false` for most connections most of the time.
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

    // MARK: - Closing
    /// Closes the descriptor, the queues, the buffers and the engine, once. Then queues `didDisconnect`.
    /// - Parameter intent: `.abandoned` if the program did not request the close, and expected its queued
    ///   bytes to be sent.
    private func close(_ error: AsyncSocketError?, _ intent: CloseIntent = .abandoned) {
        let ended = phase
        guard !ended.isClosed else { return }
        sendWritten()
        phase = .closed(error)
        // From now on no other code can use the descriptor, and callers see a closed connection.
        let withdrawn = record.withLock { $0.close(withReset: intent.contains(.reset)) }
        // Before the close releases its permit, so that a connection accepted with it is observed later.
        if let observation = observation.take() {
            observation.end(error, refusing: upgrade?.state.refusedRole, data.carried)
        } else if ended.establishing != nil {
            ConnectionObservation.deliverFailure(error, to: configuration.value.observer)
        }
        ended.establishing?.cancel()
        data.closeChannel(error, ended.isEstablished ? waiters.adjust(intent, error) : nil, upgrade?.lastReplies, on: loop)
        withExtendedLifetime(withdrawn) {}
        record.end(losing: data.drop(error))
        waiters.answerEnd(phase.endError)
        upgrade.take()?.refuseAll(phase.endError)
        note("closed", error.map { ["error": "\($0)"] } ?? [:])
        // Published before the delegate is notified, so that it reads the final values.
        publishProgress()
        outlet.append(.didDisconnect(error))
        if !waitsForClosing { closed.reach() }
    }

    func note(_ message: String, _ details: @autoclosure () -> [String: String]) {
        guard ConnectionLog.isWritten(by: configuration) else { return }
        log.write(message, details(), peer: record.remoteAddress, configuration.value.logger)
    }

    /// Starts the observation of an established connection once, as soon as there is an observer.
    private func beginObserving(_ peer: SocketEndpoint?) {
        guard observation == nil, let observer = configuration.value.observer else { return }
        observation = ConnectionObservation(log.observed(record.remoteAddress ?? peer), by: observer)
    }
}

// Rules of a connection:
//  1. All state below is touched inside the turn only. Anyone may post a message; no one waits.
//  2. This is the only performer: values decide (`TLSUpgrade`, `ReadPacket`, `WriteQueue`, `CloseIntent`, the
//     engine's answers), and the connection acts.
//  3. Bytes move in the pumps: one for each direction, in plaintext and with TLS, one for a handshake and one
//     for a proxy. Elsewhere only the end sends: what was queued just before it, a close_notify or an alert,
//     and what a `LingeringClose` takes over.
//  4. Messages change what is to be done, and `pumpIfNeeded` does it, once, when all of them are in: what is
//     queued together is served together.
//  5. The delegate is told by `outbox`, when the pump has done its work, and by nothing else.
//  6. `close` ends everything: queues and buffers are empty afterwards, and `didDisconnect` is the last
//     event.
//  7. Nothing is told of a connection before the end of what its socket did before (a connection, or a
//     listening), nor before the callback that brings it.
//  8. The loop keeps the connection alive until it is closed and its last event is on its way.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// One TCP connection, from the attempt to make it to its last event. A socket that connects again gets a new
/// one.
final class StreamConnection: EventHandler, TurnOwner, @unchecked Sendable {
    // Unchecked: by rule 1. `registration`, `isHeldBack` and `waitsForClosing` are set before the first
    // message.

    /// What can be asked of a connection.
    enum Message: Sendable {
        indirect case connect(Destination, timeout: Double)
        case predecessorIsClosed
        case predecessorHasEnded
        indirect case resolved(Resolver.Answer)
        case attempt(Int, LoopEvents)
        case adopt(SocketDescriptor)
        case events(LoopEvents)
        case read(ReadPacket)
        case write(WritePacket)
        indirect case startTLS(TLSRequest)
        case verdict(Bool)
        case extendRead(operation: UInt64, seconds: Double)
        case extendWrite(operation: UInt64, seconds: Double)
        case close(CloseIntent)
        case closeWriteStream
        case configure(SocketConfiguration.Shared)
        case changeDelegateQueue
        indirect case fail(AsyncSocketError)
        indirect case perform(@Sendable (Int32?) -> Void)
        case retire
    }

    /// For logs: the how manieth of the process it is.
    let number = StreamConnection.count.wrappingAdd(1, ordering: .relaxed).newValue
    private static let count = Atomic<UInt64>(0)
    let role: Role
    let loop: EventLoop
    let relay: DelegateRelay
    let facts = Locked(ConnectionFacts())
    let turn: SocketTurn<Message>
    private(set) var registration: LoopRegistration?
    /// Reached with the end, when the descriptor is closed, and those of the connections before.
    let closed = Milestone()
    /// Nothing is told of this connection yet: the end of what the socket did before comes first, or the
    /// callback that brings an accepted socket. Set before anyone else knows the connection.
    @exclusivity(unchecked) var isHeldBack = false
    /// The descriptor of the connection before has yet to be closed. Set before anybody else knows this one.
    @exclusivity(unchecked) var waitsForClosing = false

    // Inside the turn, which also sees to it that accesses exclude each other: to have that checked at run
    // time took 8 % of an echo.
    @exclusivity(unchecked) var settings = SocketConfiguration.initial
    @exclusivity(unchecked) var phase = ConnectionPhase.idle
    @exclusivity(unchecked) var upgrade = TLSUpgrade.plaintext
    @exclusivity(unchecked) var clock: PhaseClock?
    let reads = ReadHalf()
    let writes = WriteHalf()
    @exclusivity(unchecked) var closeIntent: CloseIntent?
    /// Something has changed that may let bytes move.
    @exclusivity(unchecked) var needsPump = false
    /// What the delegate has yet to be told.
    @exclusivity(unchecked) var outbox = Ring<DelegateEvent>()
    @exclusivity(unchecked) var isCallingUser = false
    /// Made when there is a delegate queue to send the first event to.
    @exclusivity(unchecked) var line: DelegateLine?
    @exclusivity(unchecked) var armedDeadline: Deadline?

    init(for socket: AsyncSocket, as role: Role, loop: EventLoop) {
        self.role = role
        self.loop = loop
        relay = DelegateRelay(to: socket)
        turn = SocketTurn(queue: socket.socketQueue)
    }

    /// Puts the connection on its loop, which keeps it alive until it is over. Call it once, before the first
    /// message.
    func register() {
        registration = loop.register(self)
    }

    /// Takes that back, when no one has come to know the connection.
    func deregister() {
        if let registration { loop.deregister(registration) }
    }

    // MARK: - Anywhere

    func post(_ message: Message) {
        turn.post(message, to: self)
    }

    /// On the loop: `EventHandler`.
    func handle(_ events: LoopEvents) {
        turn.post(.events(events), to: self, from: .loop)
    }

    func leaveRestToLoop() {
        guard let registration, !loop.isRegistered(registration) else { return askForTurn() }
        // It has left the loop, and what is left can only be told that it is over.
        DispatchQueue.global().async { [self] in post(.retire) }
    }

    // MARK: - Inside the turn

    func receive(_ message: Message) {
        // In a callback: what happens below is no callback.
        let isFromCallback = isCallingUser
        isCallingUser = false
        serve(message)
        isCallingUser = isFromCallback
    }

    private func serve(_ message: Message) {
        if case .closed = phase {
            if case .predecessorIsClosed = message { closed.reach() }
            switch message {
            case .predecessorHasEnded, .adopt: isHeldBack = false
            default: break
            }
            if case .retire = message { retireIfSilent() }
            if case .perform(let body) = message { body(nil) }
            if case .changeDelegateQueue = message { relay.changeQueue() }
            return
        }
        switch message {
        case .connect(let destination, let timeout):
            connect(to: destination, timeout: timeout)
        case .predecessorIsClosed: beginToConnect()
        case .predecessorHasEnded: isHeldBack = false
        case .resolved(let answer): didResolve(answer)
        case .attempt(let number, let events): react(to: events, ofAttempt: number)
        case .adopt(let descriptor):
            isHeldBack = false
            adopt(descriptor)
        case .events(let events): react(to: events)
        case .read(let packet): enqueue(packet)
        case .write(let packet): enqueue(packet)
        case .startTLS(let request): enqueue(request)
        case .verdict(let accepted): decideTrust(accepted)
        case .extendRead(let operation, let seconds): extendRead(operation, by: seconds)
        case .extendWrite(let operation, let seconds): extendWrite(operation, by: seconds)
        case .close(let intent): closeWhenDone(intent)
        case .closeWriteStream: closeWriteStream()
        case .configure(let settings): configure(settings)
        case .changeDelegateQueue: relay.changeQueue()
        case .fail(let error):
            pumpIfNeeded()
            close(error)
        case .perform(let body):
            pumpIfNeeded()
            publishProgress()
            body(facts.withLock { $0.descriptor?.rawValue })
        case .retire: break
        }
    }

    var configuration: SocketConfiguration { settings.value }

    private func configure(_ settings: SocketConfiguration.Shared) {
        guard settings.value.version > configuration.version else { return }
        self.settings = settings
        needsPump = true
    }

    func finishTurn(on place: TurnPlace) {
        pumpIfNeeded()
        if !outbox.isEmpty, !isHeldBack { tell(on: place) }
        publishProgress()
        if isOver { retireIfSilent() } else { armDeadline() }
    }

    /// Asks the loop for another turn: there is more to do than one turn should, or than is done elsewhere.
    func askForTurn() {
        if let registration { loop.resume(registration) }
    }

    private func react(to events: LoopEvents) {
        if events.contains(.deadline) { expire() }
        switch phase {
        case .connected, .negotiating: break
        case .idle, .waiting, .resolving, .connecting, .closed: return
        }
        if events.contains(.readable) { reads.mayHaveBytes = true }
        if events.contains(.readHangup) || events.contains(.urgent) { reads.trustsShortReads = false }
        if events.contains(.writable) { writes.canAcceptBytes = true }
        if events.contains(.hangup) { reads.hasHangup = true }
        needsPump = true
    }

    /// Moves bytes in both directions for as long as there is something to move, within the bounds of a turn.
    func pumpIfNeeded() {
        while needsPump {
            needsPump = false
            pump()
            reportHighWater()
        }
    }

    private func pump() {
        switch phase {
        case .connected(let descriptor): pump(descriptor)
        case .negotiating(let descriptor, let tunnel): pumpNegotiation(tunnel, descriptor)
        case .idle, .waiting, .resolving, .connecting, .closed: break
        }
    }

    private func pump(_ descriptor: SocketDescriptor) {
        var goesOn = true
        while goesOn {
            switch upgrade {
            case .plaintext, .queuedTLS:
                pumpWrites(to: descriptor)
                pumpReads(from: descriptor)
                goesOn = beginHandshakeIfDrained(descriptor)
            case .handshaking(let engine):
                goesOn = pumpHandshake(engine, descriptor)
            case .awaitingTrust(let engine):
                sendCiphertext(engine, descriptor)
                goesOn = false
            case .secure(let engine):
                pumpWrites(through: engine, to: descriptor)
                pumpReads(through: engine, from: descriptor)
                // A message of the peer that had come by half holds up writes; reading may have completed it.
                pumpWrites(through: engine, to: descriptor)
                goesOn = false
            }
            guard case .connected = phase else { return }
        }
        finishPump(descriptor)
    }
}

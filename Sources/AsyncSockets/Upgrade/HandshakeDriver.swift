// Rules of the driver:
//  1. `TLSUpgrade` holds the state. The driver advances the handshake over a transport, handles the engine's
//     questions, keeps the clock and the waiters, and notifies the delegate and the observer.
//  2. Streams (`HandshakeDriver+Streams`) and datagrams (`DatagramUpgrade`) prepare their handshakes
//     differently. From then on they share `shakeHands`.
//  3. A fatal error is returned to the socket, which then closes.
//  4. There is one waiter at a time: a socket is upgraded once, and a second request for a certificate is
//     rejected while the first is outstanding.
//  5. The program's closures (a client's look-up, a server's choices) and long computations run outside the
//     turn. Their results arrive as messages.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A TLS engine and the channel for its messages.
protocol HandshakeTransport: AnyObject {
    /// How often messages are received in one turn, so that other sockets on the loop can run.
    static var roundsPerTurn: Int { get }
    /// The number of records that required work. A turn handles at most `recordsPerTurn` of them.
    var acceptedRecordCount: Int { get }
    static var recordsPerTurn: Int { get }
    /// The session and the exporter of a complete handshake.
    var result: (TLSSession?, KeyExporter)? { get }

    /// Advances the engine, and sends its output.
    func advance() -> TLSEngine.HandshakeAnswer
    /// Receives messages for the engine.
    func receiveMessages() -> HandshakeInput
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal)
    func choose(_ choice: TLSServerChoice)
    /// Takes back a step of the handshake that another thread has completed.
    func takeBackWork()
    /// Rejects a step of the handshake that no thread will run. The handshake fails.
    func refuseWork()
}

enum HandshakeInput {
    case received
    /// No messages until the next event.
    case nothing
    case failed(AsyncSocketError)
}

/// The socket that is being upgraded. Used by its upgrade, inside the socket's turn.
protocol HandshakeOwner {
    /// The operation to name in errors: `startTLS` or `startDTLS`.
    static var upgradeOperation: AsyncSocketError.Operation { get }
    /// The observer's view of the connection. `nil` if the socket has no observer.
    var observation: ConnectionObservation? { get }
    /// Posts news to the upgrade from any thread, without keeping the socket alive.
    var newsSender: @Sendable (UpgradeNews) -> Void { get }
    /// Logs an event at the level `debug`. Data that was read or written is never logged.
    func note(_ message: String, _ details: @autoclosure () -> [String: String])
    /// Publishes the result of a handshake to callers.
    func publish(_ session: CopyOnWrite<TLSSession>?, _ exporter: KeyExporter)
    func deliverSecured()
    func deliver(_ trust: PeerTrust, _ decide: @escaping @Sendable (Bool) -> Void)
}

/// The upgrade of a connection or of a UDP socket: its state, its clock, its waiters and its pending
/// decisions.
///
/// Confined to the turn of its socket. A plaintext socket does not allocate an upgrade; its only cost is a
/// check for `nil`.
final class HandshakeDriver {
    @exclusivity(unchecked) var state: TLSUpgrade
    @exclusivity(unchecked) var clock: PhaseClock?
    @exclusivity(unchecked) var waiters = UpgradeWaiters()
    /// The task that runs a closure of the program, if one is running.
    @exclusivity(unchecked) private var responder: Task<Void, Never>?
    /// The reason why the handshake must not start.
    @exclusivity(unchecked) private(set) var failedLookUp: TLSError?

    init(_ request: TLSRequest) {
        state = .queuedTLS(request, drained: [])
        waiters.add(request.waiter, decidesTrust: request.waiterDecidesTrust)
    }

    // MARK: - Steps

    enum Step {
        /// No progress is possible until another event.
        case incomplete
        /// Bytes may be transferred now: exchange them, and advance again.
        case moved
        /// Advance again in another turn.
        case more
        case fails(AsyncSocketError)
    }

    func beginHandshake(_ settings: TLSSettingValues, _ owner: some HandshakeOwner) {
        state.begin()
        owner.observation?.beginHandshake(as: settings.role)
        clock = PhaseClock(
            .handshake(thenTrust: settings.trustTimeout.inSeconds), seconds: settings.handshakeTimeout.inSeconds)
        owner.note("TLS handshake started", ["as": settings.role == .server ? "server" : "client"])
    }

    /// Advances the handshake, or the processing of a client's response to a certificate request, as far as
    /// possible. Calls `complete` when it is complete.
    func shakeHands<Transport: HandshakeTransport>(
        over transport: Transport, _ owner: some HandshakeOwner, complete: (TLSSession?, KeyExporter) -> Void
    ) -> Step {
        let recordLimit = transport.acceptedRecordCount + Transport.recordsPerTurn
        for _ in 0..<Transport.roundsPerTurn where transport.acceptedRecordCount < recordLimit {
            switch transport.advance() {
            case .complete:
                guard let (session, exporter) = transport.result else { return .incomplete }
                complete(session, exporter)
                return .moved
            case .awaitingTrust(let trust):
                ask(trust, state.awaitTrust(), owner)
                return .moved
            case .awaitingSettings(let question):
                ask(question, owner)
                return .incomplete
            case .awaitingWork(let work): return perform(work, transport, owner)
            case .failed(let error): return .fails(AsyncSocketError(error, operation: operation(of: owner)))
            case .incomplete:
                switch transport.receiveMessages() {
                case .received: break
                case .nothing: return .incomplete
                case .failed(let error): return .fails(error.during(operation(of: owner)))
                }
            }
        }
        return .more
    }

    /// The operation to name in errors.
    private func operation<Owner: HandshakeOwner>(of owner: Owner) -> AsyncSocketError.Operation {
        state.isSecure ? .requestClientCertificate : Owner.upgradeOperation
    }

    /// Publishes the session and reports that the socket is secure. The markers have already been removed
    /// from the queues.
    func secure(_ session: TLSSession?, _ exporter: KeyExporter, _ owner: some HandshakeOwner) {
        state.succeed()
        let shared = session.map(LatestSession.share)
        owner.publish(shared, exporter)
        owner.note(
            "TLS established",
            ["version": session?.protocolVersion.description ?? "", "cipherSuite": session?.cipherSuite ?? ""])
        clock = nil
        if let session { owner.observation?.succeed(session) }
        if !waiters.answer(.secured(shared)) { owner.deliverSecured() }
    }

    /// Runs a step of the handshake on another thread.
    private func perform(
        _ work: HandshakeWork, _ transport: some HandshakeTransport, _ owner: some HandshakeOwner
    ) -> Step {
        let send = owner.newsSender
        let isAccepted = HandshakeWorkers.shared.perform(work.key, isCancelled: { work.isCancelled }) {
            work.perform()
            send(.worked)
        }
        if isAccepted { return .incomplete }
        transport.refuseWork()
        return .fails(.tooManyHandshakes)
    }

    // MARK: - Decisions

    private func ask(_ trust: PeerTrust, _ number: TrustQuestionNumber, _ owner: some HandshakeOwner) {
        clock = clock?.pauseForTrust()
        owner.observation?.beginDecision()
        if waiters.answer(.asksTrust(trust, number)) { return }
        owner.deliver(trust) { [send = owner.newsSender] in send(.verdict($0, of: number)) }
    }

    /// Applies a verdict, unless its question has already been decided.
    private func decide(
        _ accepted: Bool, of question: TrustQuestionNumber, refusal: TrustRefusal = .rejected,
        _ transport: some HandshakeTransport, _ owner: some HandshakeOwner
    ) {
        guard state.question == question else { return }
        transport.decideTrust(accepted, refusal: refusal)
        state.resume()
        clock = clock?.resumeHandshake()
        owner.observation?.endDecision()
    }

    /// Runs a closure of the server's program off the loop, to select settings or to decide whether to accept
    /// early data.
    func ask(_ question: TLSServerQuestion, _ owner: some HandshakeOwner) {
        responder = Task.detached { [send = owner.newsSender] in
            let choice = await question.answer()
            send(.chosen(choice))
        }
    }

    /// Starts the look-up that a client's settings require. Returns false if they are complete.
    func lookUp(for request: TLSRequest, _ owner: some HandshakeOwner) -> Bool {
        guard let lookUp = request.settings.lookUp else { return false }
        state.beginLookUp(request)
        clock = PhaseClock(.lookUp(lookUp.timeoutError), seconds: lookUp.timeout.inSeconds)
        owner.note("look-up for TLS started", [:])
        responder = Task.detached { [send = owner.newsSender] in
            let settings = await lookUp.answer()
            send(.lookedUp(settings))
        }
        return true
    }

    private func endLookUp(_ result: Result<TLSSettingValues, TLSError>) {
        guard case .lookingUp = state else { return }
        (responder, clock) = (nil, nil)
        switch result {
        case .success(let settings): state.endLookUp(settings)
        case .failure(let error): failedLookUp = error
        }
    }

    func receive(_ news: UpgradeNews, over transport: (some HandshakeTransport)?, _ owner: some HandshakeOwner) {
        switch news {
        case .verdict(let accepted, let question): if let transport { decide(accepted, of: question, transport, owner) }
        case .awaited(let waiter): waiters.add(waiter, decidesTrust: true)
        // Sent once, after the step that was lent last, so no other thread is using the engine.
        case .worked: transport?.takeBackWork()
        case .chosen(let choice):
            responder = nil
            transport?.choose(choice)
        case .lookedUp(let settings): endLookUp(settings)
        }
    }

    // MARK: - Waiters

    /// Fails all waiters. If a closure of the program is still running, it is cancelled and its result is
    /// ignored.
    func refuseAll(_ error: any Error) {
        responder.take()?.cancel()
        waiters.refuseAll(error)
    }

    /// Removes a waiter. Returns a closure that completes the waiter with an error, or `nil` if the waiter
    /// was not found.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? { waiters.remove(waiter) }

    // MARK: - Timeouts

    var hasDeadline: Bool { clock != nil || !waiters.isEmpty }

    var deadline: Deadline? { waiters.deadline(with: clock) }

    /// Returns a waiter with an expired deadline, and its error.
    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { waiters.late(at: now) }

    enum TimeoutStep {
        case nothing
        /// Earlier writes or datagrams have taken too long.
        case beforeHandshake(PhaseClock)
        case handshake(AsyncSocketError)
    }

    func expire(
        at now: Deadline, over transport: (some HandshakeTransport)?, _ owner: some HandshakeOwner
    ) -> TimeoutStep {
        guard let clock, let deadline = clock.deadline, deadline <= now else { return .nothing }
        switch clock.limit {
        case .earlierWrites, .earlierDatagrams: return .beforeHandshake(clock)
        case .lookUp(let error): return .handshake(AsyncSocketError(error, operation: operation(of: owner)))
        case .dialogue(let name): return .handshake(.dialogueTimeout(name, seconds: clock.seconds))
        case .handshake: return .handshake(.timeout(.handshakeTimeout, operation(of: owner), seconds: clock.seconds))
        case .trust:
            // A missing verdict is treated as a rejection.
            if let question = state.question, let transport {
                decide(false, of: question, refusal: .timedOut, transport, owner)
            } else {
                self.clock = nil
            }
        }
        return .nothing
    }
}

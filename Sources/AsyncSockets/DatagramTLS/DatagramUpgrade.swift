// Rules of an upgrade to DTLS, beside the rules of `TLSUpgrade`:
//  1. `startDTLS` leaves a marker in both queues: sends that were asked for before leave in plaintext, and
//     `receiveOnce()` gets its datagram. From the moment when the input is at its marker nothing in plaintext
//     is received any more; what was received and not delivered is dropped when the handshake begins.
//  2. From the beginning of the handshake all that arrives goes to the engine. No path leads back: a failure
//     closes the socket, and so do `disconnect()` and an attempt to connect that fails.
//  3. The engine sends its messages again by a clock of the loop, also while a program decides about the
//     peer.
//  4. A task gives what comes before its upgrade as long as the handshake. A delegate's upgrade waits for it
//     without a limit, as `beginTLS` does.
//  5. Functions of the program, and what takes long, run elsewhere. Their answer is a message.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The upgrade of a UDP socket to DTLS: how far it is, its clocks, its waiters and its questions. Confined to
/// the turn; a socket in plaintext has none.
final class DatagramUpgrade {
    /// The parts of its socket that it needs.
    struct Surroundings {
        let outbox: EventOutbox<DatagramEvent>
        let record: Locked<DatagramRecord>
        let counts: DatagramCounts
        let journal: DatagramJournal
        let post: @Sendable (DatagramMessage) -> Void
    }

    @exclusivity(unchecked) private var state: TLSUpgrade
    @exclusivity(unchecked) private var clock: PhaseClock?
    @exclusivity(unchecked) private var waiters = UpgradeWaiters()
    @exclusivity(unchecked) private(set) var layer: DatagramLayer?
    /// A step that another thread does.
    private var lentWork: HandshakeWork?
    private let around: Surroundings
    private var settings: TLSSettingValues

    /// How many datagrams of a handshake a turn takes.
    private static let datagramsPerTurn = 64

    init(_ request: TLSRequest, _ around: Surroundings) {
        state = .queuedTLS(request, drained: [])
        settings = request.settings
        self.around = around
        waiters.add(request.waiter, decidesTrust: request.waiterDecidesTrust)
        clock = state.taskTimeout.map { PhaseClock(.earlierDatagrams, seconds: $0) }
    }

    /// The handshake is complete. Kept beside the state, which each turn would have to take apart.
    @exclusivity(unchecked) private(set) var isSecure = false
    /// The role in a handshake that was refused before it began.
    var refusedRole: TLSRole? { state.refusedRole }

    // MARK: - Going on

    /// The socket is secure, and there is nothing to be done about that.
    var isQuiet: Bool {
        isSecure && layer?.isQuiet == true
    }

    /// Goes on towards DTLS. The error ends the socket.
    func advance(
        _ channel: DatagramChannel, _ peer: InternetAddress, _ configuration: DatagramConfiguration, _ input: DatagramInput,
        _ output: DatagramOutput
    ) -> AsyncSocketError? {
        if case .queuedTLS = state, let error = beginIfDrained(channel, configuration, input, output) { return error }
        if case .handshaking = state, let error = shakeHands(channel, peer, input, output) { return error }
        if let end = layer?.end, input.isDrained { return end }
        layer?.flush()
        noteDrops()
        return nil
    }

    /// Publishes how many records counted for nothing.
    func noteDrops() {
        if let layer { around.counts.droppedRecords.store(layer.engine.droppedRecordCount, ordering: .relaxed) }
    }

    private func beginIfDrained(
        _ channel: DatagramChannel, _ configuration: DatagramConfiguration, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        var drained: TLSUpgrade.DrainedQueues = []
        if input.isAtStartTLS { drained.insert(.startingReadTLS) }
        if output.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = state.note(drained) else { return nil }
        do throws(TLSError) {
            let size = configuration.maximumDatagramSize
            let engine = try DTLSEngine(
                context: request.context, settings: request.settings, endpoint: request.endpoint,
                size: size ?? channel.preparePath(), isSizeGiven: size != nil, defersWork: true)
            if configuration.firstRetransmission != .seconds(1) {
                engine.setFirstTimeout(seconds: configuration.firstRetransmission.inSeconds)
            }
            let layer = DatagramLayer(engine, over: channel, isSizeGiven: size != nil, around.counts)
            if let hello = channel.takeHello(), !hello.withUnsafeBytes({ engine.listen($0) }) { return .badHello }
            self.layer = layer
            input.secure(layer)
            output.secure(layer)
        } catch {
            return AsyncSocketError(error, operation: "startDTLS")
        }
        state.begin()
        around.journal.handshake?.beginHandshake(as: settings.role)
        clock = PhaseClock(
            .handshake(thenTrust: settings.trustTimeout.inSeconds), seconds: settings.handshakeTimeout.inSeconds)
        return nil
    }

    /// Takes what has arrived, and goes on as far as it can.
    private func shakeHands(
        _ channel: DatagramChannel, _ peer: InternetAddress, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        guard let layer else { return nil }
        let recordLimit = layer.engine.acceptedRecordCount + DatagramInput.recordsPerTurn
        for _ in 0..<Self.datagramsPerTurn where layer.engine.acceptedRecordCount < recordLimit {
            let answer = layer.engine.handshake()
            layer.flush()
            switch answer {
            case .incomplete, .awaitingSettings:
                guard let received = channel.next() else { return nil }
                if received.sender == peer { layer.receive(received) }
            case .awaitingTrust(let trust):
                ask(trust)
                return nil
            case .awaitingWork(let work):
                lentWork = work
                return perform(work)
            case .complete:
                channel.noteSecured()
                didSecure(layer, peer, input, output)
                return nil
            case .failed(let error): return AsyncSocketError(error, operation: "startDTLS")
            }
        }
        around.post(.roomIsBack)
        return nil
    }

    private func didSecure(_ layer: DatagramLayer, _ peer: InternetAddress, _ input: DatagramInput, _ output: DatagramOutput) {
        state.succeed()
        isSecure = state.isSecure
        clock = nil
        let session = layer.engine.session
        let security = DatagramSecurity(session: session.map(LatestSession.share), exporter: layer.engine.exporter)
        around.record.withLock { $0.security = security }
        layer.noteLimit()
        around.journal.note(
            "DTLS established",
            ["version": session?.protocolVersion.description ?? "", "cipherSuite": session?.cipherSuite ?? ""],
            peer: peer.socketAddress)
        if let session { around.journal.handshake?.succeed(session) }
        input.removeStartTLS()
        output.removeStartTLS()
        if !waiters.answer(.secured(security.session)) { around.outbox.append(.didSecure) }
    }

    // MARK: - Questions

    private func ask(_ trust: PeerTrust) {
        let number = state.awaitTrust()
        clock = clock?.pauseForTrust()
        around.journal.handshake?.beginDecision()
        if waiters.answer(.asksTrust(trust, number)) { return }
        around.outbox.append(.didReceiveTrust(trust) { [post = around.post] in post(.upgrading(.verdict($0, of: number))) })
    }

    /// News from elsewhere.
    func receive(_ news: UpgradeNews) {
        switch news {
        case .verdict(let accepted, let question): decide(accepted, of: question)
        case .awaited(let waiter): waiters.add(waiter, decidesTrust: true)
        case .worked(let work):
            lentWork = nil
            layer?.engine.takeBack(work)
        case .chosen, .sendTickets: break
        }
    }

    /// A verdict. A second one, or one that comes too late, finds its question answered.
    private func decide(_ accepted: Bool, of question: TrustQuestionNumber, refusal: TrustRefusal = .rejected) {
        guard state.question == question, let layer else { return }
        layer.engine.decideTrust(accepted, refusal: refusal)
        state.resume()
        clock = clock?.resumeHandshake()
        around.journal.handshake?.endDecision()
    }

    private func perform(_ work: HandshakeWork) -> AsyncSocketError? {
        let isAccepted = HandshakeWorkers.shared.perform(work.key, isCancelled: { work.isCancelled }) { [post = around.post] in
            work.perform()
            post(.upgrading(.worked(work)))
        }
        if isAccepted { return nil }
        layer?.engine.refuse(work)
        layer?.flush()
        return .tooManyHandshakes
    }

    // MARK: - The end

    /// The socket closes: says so to the peer, and answers everyone who waits.
    ///
    /// - Parameter isReplaced: The address of the peer has a new connection, which gets nothing of this one.
    func end(_ error: AsyncSocketError, isReplaced: Bool) {
        lentWork?.cancel()
        if let layer, !isReplaced {
            if isSecure { layer.engine.shutdown() } else { layer.engine.abandonHandshake() }
            layer.flush()
        }
        waiters.refuseAll(error)
    }

    /// Takes a waiter out, to be answered with an error; nil when it does not wait here.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? { waiters.remove(waiter) }

    // MARK: - Time

    var deadline: Deadline? {
        if let layer, isSecure, waiters.isEmpty { return layer.restDeadline.isNever ? nil : layer.restDeadline }
        let own = waiters.deadline(with: clock)
        guard let seconds = layer?.engine.secondsToTimeout else { return own }
        return .earlier(own, Deadline(after: seconds))
    }

    /// A waiter whose time has come, and its answer.
    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { waiters.late(at: now) }

    /// The error ends the socket.
    func expire(at now: Deadline) -> AsyncSocketError? {
        if let error = layer?.engine.handleTimeout() { return AsyncSocketError(error, operation: "startDTLS") }
        layer?.flush()
        layer?.expire(at: now)
        guard let clock, let deadline = clock.deadline, deadline <= now else { return nil }
        switch clock.limit {
        case .earlierDatagrams: return .stuckBeforeDTLS(seconds: clock.seconds)
        case .handshake:
            return .timeout(.handshakeTimeout, "startDTLS", seconds: clock.seconds)
        case .trust:
            // No verdict came in time: that is a no.
            if let question = state.question { decide(false, of: question, refusal: .timedOut) }
        case .earlierWrites: break
        }
        return nil
    }
}

extension AsyncSocketError {
    fileprivate static func stuckBeforeDTLS(seconds: Double) -> AsyncSocketError {
        AsyncSocketError(
            .handshakeTimeout, blame: .caller, operation: "startDTLS",
            message: "what came before it (datagrams, receiveOnce(), filters) did not end within \(seconds) seconds")
    }

    fileprivate static var badHello: AsyncSocketError {
        AsyncSocketError(
            TLSError(.protocolViolation, "OpenSSL does not take the ClientHello.", operation: "DTLSv1_listen"),
            operation: "startDTLS")
    }
}

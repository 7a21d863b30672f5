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

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The upgrade of a UDP socket to DTLS: the preparation of the handshake and the transport of its messages.
/// `Upgrade` has the rest. Confined to the turn; a plaintext socket does not allocate one.
final class DatagramUpgrade {
    /// The parts of its socket that it needs.
    struct Surroundings {
        let outbox: EventOutbox<DatagramEvent>
        let record: Locked<DatagramRecord>
        let counts: DatagramCounts
        let journal: DatagramJournal
        let post: @Sendable (DatagramMessage) -> Void
    }

    private let upgrade: Upgrade
    @exclusivity(unchecked) private(set) var layer: DatagramLayer?
    /// A step that another thread does.
    private var lentWork: HandshakeWork?
    private let around: Surroundings
    /// For the log.
    private var peer: SocketAddress?

    /// How many datagrams of a handshake a turn takes.
    private static let datagramsPerTurn = 64

    init(_ request: TLSRequest, _ around: Surroundings) {
        upgrade = Upgrade(request)
        self.around = around
        upgrade.clock = upgrade.state.taskTimeout.map { PhaseClock(.earlierDatagrams, seconds: $0) }
    }

    /// The handshake is complete. Kept beside the state, which each turn would have to take apart.
    @exclusivity(unchecked) private(set) var isSecure = false
    /// The role in a handshake that was refused before it began.
    var refusedRole: TLSRole? { upgrade.state.refusedRole }

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
        if case .queuedTLS = upgrade.state, let error = beginIfDrained(channel, peer, configuration, input, output) {
            return error
        }
        if case .handshaking = upgrade.state, let error = shakeHands(channel, peer, input, output) { return error }
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
        _ channel: DatagramChannel, _ peer: InternetAddress, _ configuration: DatagramConfiguration, _ input: DatagramInput,
        _ output: DatagramOutput
    ) -> AsyncSocketError? {
        var drained: TLSUpgrade.DrainedQueues = []
        if input.isAtStartTLS { drained.insert(.startingReadTLS) }
        if output.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = upgrade.state.note(drained) else { return nil }
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
        self.peer = peer.socketAddress
        upgrade.state.begin()
        upgrade.beginHandshake(request.settings, self)
        return nil
    }

    /// Takes what has arrived, and goes on as far as it can.
    private func shakeHands(
        _ channel: DatagramChannel, _ peer: InternetAddress, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        guard let layer else { return nil }
        let recordLimit = layer.acceptedRecordCount + DatagramInput.recordsPerTurn
        for _ in 0..<Self.datagramsPerTurn where layer.acceptedRecordCount < recordLimit {
            let answer = layer.engine.handshake()
            layer.flush()
            switch answer {
            case .incomplete, .awaitingSettings:
                guard let received = channel.next() else { return nil }
                if received.sender == peer { layer.receive(received) }
            case .awaitingTrust(let trust):
                upgrade.ask(trust, upgrade.state.awaitTrust(), self)
                return nil
            case .awaitingWork(let work):
                lentWork = work
                return upgrade.perform(work, layer, self)
            case .complete:
                channel.noteSecured()
                didSecure(layer, input, output)
                return nil
            case .failed(let error): return AsyncSocketError(error, operation: "startDTLS")
            }
        }
        around.post(.roomIsBack)
        return nil
    }

    private func didSecure(_ layer: DatagramLayer, _ input: DatagramInput, _ output: DatagramOutput) {
        upgrade.state.succeed()
        isSecure = upgrade.state.isSecure
        layer.noteLimit()
        input.removeStartTLS()
        output.removeStartTLS()
        upgrade.secure(layer.engine.session, layer.engine.exporter, self)
    }

    /// News from elsewhere.
    func receive(_ news: UpgradeNews) {
        if case .worked = news { lentWork = nil }
        upgrade.receive(news, over: layer, self)
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
        upgrade.refuseAll(error)
    }

    /// Takes a waiter out, to be answered with an error; nil when it does not wait here.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? { upgrade.remove(waiter) }

    // MARK: - Time

    var deadline: Deadline? {
        if let layer, isSecure, !upgrade.hasDeadline { return layer.restDeadline.isNever ? nil : layer.restDeadline }
        let own = upgrade.deadline
        guard let seconds = layer?.engine.secondsToTimeout else { return own }
        return .earlier(own, Deadline(after: seconds))
    }

    /// A waiter whose time has come, and its answer.
    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { upgrade.lateWaiter(at: now) }

    /// The error ends the socket.
    func expire(at now: Deadline) -> AsyncSocketError? {
        if let error = layer?.engine.handleTimeout() { return AsyncSocketError(error, operation: "startDTLS") }
        layer?.flush()
        layer?.expire(at: now)
        switch upgrade.expire(at: now, in: "startDTLS", layer, self) {
        case .nothing: return nil
        case .handshake(let error): return error
        case .beforeHandshake(let late): return .stuckBeforeDTLS(seconds: late.seconds)
        }
    }
}

extension DatagramUpgrade: UpgradeOwner {
    var observation: ConnectionObservation? { around.journal.handshake }

    var newsSender: @Sendable (UpgradeNews) -> Void {
        { [post = around.post] in post(.upgrading($0)) }
    }

    func note(_ message: String, _ details: @autoclosure () -> [String: String]) {
        around.journal.note(message, details(), peer: peer)
    }

    func publish(_ session: CopyOnWrite<TLSSession>?, _ exporter: KeyExporter) {
        around.record.withLock { $0.security = DatagramSecurity(session: session, exporter: exporter) }
    }

    func deliverSecured() { around.outbox.append(.didSecure) }

    func deliver(_ trust: PeerTrust, _ decide: @escaping @Sendable (Bool) -> Void) {
        around.outbox.append(.didReceiveTrust(trust, answer: decide))
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

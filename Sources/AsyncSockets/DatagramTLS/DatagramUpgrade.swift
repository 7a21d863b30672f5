// Rules of an upgrade to DTLS, in addition to the rules of `TLSUpgrade`:
//  1. `startDTLS` places a marker in both queues. Datagrams queued before it are sent in plaintext, and an
//     earlier `receiveOnce()` receives its datagram. Once the input has reached its marker, no more plaintext
//     is received. Undelivered plaintext is dropped when the handshake starts.
//  2. From the start of the handshake, all arriving datagrams go to the engine. The socket never returns to
//     plaintext: a failure closes it, and so do `dissolveAssociation()` and a failed attempt to connect.
//  3. The engine retransmits its messages using a timer of the loop, even while the program decides whether
//     to trust the peer.
//  4. For a task, work before the handshake may take as long as the handshake itself. For a delegate it has
//     no limit, as with `beginTLS`.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The upgrade of a UDP socket to DTLS: the preparation of the handshake and the transport of its messages.
/// `HandshakeDriver` contains the rest. Confined to the turn; a plaintext socket does not allocate one.
final class DatagramUpgrade {
    struct Surroundings {
        let outbox: EventOutbox<DatagramEvent>
        let record: Locked<DatagramRecord>
        let counts: DatagramCounts
        let journal: DatagramJournal
        let post: @Sendable (DatagramMessage) -> Void
    }

    private let upgrade: HandshakeDriver
    @exclusivity(unchecked) private(set) var layer: DatagramLayer?
    private var selection: DatagramSettingsSelection?
    private let around: Surroundings
    /// For the log.
    private var peer: SocketEndpoint?
    /// Reports that handshake messages were not delivered.
    private var failures = FailureTally()
    /// The report that makes the handshake fail, if `failsHandshakeOnDeliveryFailure` is set.
    private var fatalFailure: AsyncSocketError?

    init(_ request: TLSRequest, _ around: Surroundings) {
        upgrade = HandshakeDriver(request)
        self.around = around
        upgrade.clock = upgrade.state.taskTimeout.map { PhaseClock(.earlierDatagrams, seconds: $0) }
    }

    /// Whether the handshake is complete. A separate copy, because checking the state in each turn would be
    /// slower.
    @exclusivity(unchecked) private(set) var isSecure = false
    /// The role in a handshake that was rejected before it started.
    var refusedRole: TLSRole? { upgrade.state.refusedRole }

    // MARK: - Progress

    /// Whether the socket is secure and the layer has no work.
    var isQuiet: Bool {
        isSecure && layer?.isQuiet == true
    }

    /// Continues the upgrade. If this returns an error, the socket is closed with that error.
    func advance(
        _ channel: DatagramChannel, _ peer: InternetAddress, _ configuration: DatagramConfiguration, _ input: DatagramInput,
        _ output: DatagramOutput
    ) -> AsyncSocketError? {
        if case .queuedTLS = upgrade.state, let error = beginIfDrained(channel, peer, configuration, input, output) {
            return error
        }
        if case .lookingUp = upgrade.state, let error = upgrade.failedLookUp {
            return AsyncSocketError(error, operation: .startDTLS)
        }
        if case .lookedUp(let request) = upgrade.state,
            let error = begin(request, nil, hasCookie: true, channel, peer, configuration, input, output)
        {
            return error
        }
        if let selection, let error = select(selection, channel, peer, configuration, input, output) { return error }
        if let fatalFailure { return fatalFailure }
        if case .handshaking = upgrade.state, let error = shakeHands(channel, input, output) { return error }
        if let end = layer?.end, input.isDrained { return end }
        layer?.flush()
        noteDrops()
        return nil
    }

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
        self.peer = peer.socketAddress
        if upgrade.lookUp(for: request, self) { return nil }
        selection = DatagramSettingsSelection(request)
        if selection == nil { return begin(request, nil, hasCookie: true, channel, peer, configuration, input, output) }
        upgrade.beginHandshake(request.settings, self)
        return nil
    }

    /// Selects a listener's settings for the peer's server name.
    private func select(
        _ selection: DatagramSettingsSelection, _ channel: DatagramChannel, _ peer: InternetAddress,
        _ configuration: DatagramConfiguration, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        switch selection.advance(channel, peer) {
        case .incomplete:
            if selection.mayHaveMore { around.post(.roomIsBack) }
            return nil
        case .asks(let question):
            upgrade.ask(question, self)
            return nil
        case .chosen(let choice):
            self.selection = nil
            return begin(
                selection.request, choice, hasCookie: selection.hasCookie, channel, peer, configuration, input, output)
        case .refused(let error, let alert):
            alert.withUnsafeBytes { _ = channel.send(OutgoingDatagram($0, to: nil)) }
            return AsyncSocketError(error, operation: .startDTLS)
        }
    }

    /// Creates the engine.
    ///
    /// - Parameters:
    ///   - choice: The settings selected for the client's server name.
    ///   - hasCookie: Whether the ClientHello, if it has already been received, has a verified cookie.
    private func begin(
        _ request: TLSRequest, _ choice: DatagramChoice?, hasCookie: Bool, _ channel: DatagramChannel,
        _ peer: InternetAddress, _ configuration: DatagramConfiguration, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        do throws(TLSError) {
            let size = configuration.maximumDatagramSize
            let engine = try DTLSEngine(
                context: choice?.context ?? request.context, settings: choice?.settings ?? request.settings,
                endpoint: request.endpoint, size: size ?? channel.preparePath(), isSizeGiven: size != nil, defersWork: true)
            if configuration.firstRetransmission != .seconds(1) {
                engine.setFirstTimeout(seconds: configuration.firstRetransmission.inSeconds)
            }
            let layer = DatagramLayer(engine, over: channel, with: peer, isSizeGiven: size != nil, around.counts)
            var hello = (choice?.datagrams ?? [channel.takeHello()].compactMap(\.self))[...]
            if hasCookie, let first = hello.popFirst(), !first.withUnsafeBytes({ engine.listen($0) }) { return .badHello }
            choice?.apply(to: engine)
            for datagram in hello { datagram.withUnsafeBytes { engine.receive($0) } }
            self.layer = layer
            input.secure(layer)
            output.secure(layer)
        } catch {
            return AsyncSocketError(error, operation: .startDTLS)
        }
        if choice == nil { upgrade.beginHandshake(request.settings, self) }
        return nil
    }

    /// Processes received datagrams, and continues the handshake as far as possible.
    private func shakeHands(
        _ channel: DatagramChannel, _ input: DatagramInput, _ output: DatagramOutput
    ) -> AsyncSocketError? {
        guard let layer else { return nil }
        let step = upgrade.shakeHands(over: layer, self) { session, exporter in
            channel.noteSecured()
            layer.noteLimit()
            input.removeStartTLS()
            output.removeStartTLS()
            upgrade.secure(session, exporter, self)
            isSecure = true
        }
        switch step {
        case .incomplete, .moved: return nil
        case .more: around.post(.roomIsBack)
        case .fails(let error): return error
        }
        return nil
    }

    /// Notes that a datagram was not delivered.
    ///
    /// - Parameter isFatal: Whether the handshake fails.
    func noteFailure(_ error: AsyncSocketError, isFatal: Bool) {
        guard layer != nil, !isSecure else { return }
        failures.note(error)
        guard isFatal else { return }
        fatalFailure = error
        fatalFailure?.operation = .startDTLS
    }

    /// Handles the result of work done outside the turn.
    func receive(_ news: UpgradeNews) {
        if case .chosen(.settings(let settings)) = news { selection?.note(settings) }
        upgrade.receive(news, over: layer, self)
    }

    // MARK: - Closing

    /// Called when the socket closes. Notifies the peer, and fails all waiters.
    ///
    /// - Parameter isReplaced: Whether a new connection uses the peer's address. The new client must not
    ///   receive datagrams from this connection.
    func end(_ error: AsyncSocketError, isReplaced: Bool) {
        layer?.engine.cancelWork()
        if let layer, !isReplaced {
            if isSecure { layer.engine.shutdown() } else { layer.engine.abandonHandshake() }
            layer.flush()
        }
        upgrade.refuseAll(error)
    }

    /// Removes a waiter, and returns a closure that fails it. Returns `nil` if the waiter was not found.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? { upgrade.remove(waiter) }

    // MARK: - Deadlines

    var deadline: Deadline? {
        if let layer, isSecure, !upgrade.hasDeadline { return layer.restDeadline.isNever ? nil : layer.restDeadline }
        let own = upgrade.deadline
        guard let seconds = layer?.engine.secondsToTimeout else { return own }
        return .earlier(own, Deadline(after: seconds))
    }

    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { upgrade.lateWaiter(at: now) }

    /// Handles timeouts. If this returns an error, the socket is closed with that error.
    func expire(at now: Deadline) -> AsyncSocketError? {
        if let error = layer?.engine.handleTimeout() { return AsyncSocketError(error, operation: .startDTLS) }
        layer?.flush()
        layer?.expire(at: now)
        switch upgrade.expire(at: now, over: layer, self) {
        case .nothing: return nil
        case .handshake(let error): return failures.explain(error)
        case .beforeHandshake(let late): return .stuckBeforeDTLS(seconds: late.seconds)
        }
    }
}

extension DatagramUpgrade: HandshakeOwner {
    static var upgradeOperation: AsyncSocketError.Operation { .startDTLS }

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
            .handshakeTimeout, fault: .caller, operation: .startDTLS,
            message: "earlier operations (datagrams, receiveOnce(), filters) did not complete within \(text(ofSeconds: seconds))")
    }

    fileprivate static var badHello: AsyncSocketError {
        AsyncSocketError(
            TLSError(.protocolViolation, "OpenSSL did not accept the ClientHello", operation: "DTLSv1_listen"),
            operation: .startDTLS)
    }
}

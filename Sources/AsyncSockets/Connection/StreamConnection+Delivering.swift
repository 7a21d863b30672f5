internal import SocketBuffers
internal import SocketCore

/// Between a connection and its delegate: what it is told, and what it asks for while it is told.
extension StreamConnection {
    /// The most events that one inline delivery brings before others on the loop have their turn.
    private static let deliveryLimit = 16

    // MARK: - To the delegate

    func report(_ event: DelegateEvent) {
        outbox.append(event)
    }

    /// Inside the turn: has the delegate told what waits in `outbox`, here and now where that may be.
    func tell(on place: TurnPlace) {
        // No one else has told it of a new queue: the socket's changes go to the connection after this one.
        if relay.isSuperseded { relay.changeQueue() }
        if let queue = relay.queue {
            let line = line ?? DelegateLine(to: relay)
            self.line = line
            // Before the delegate can ask.
            publishProgress()
            line.send(&outbox, to: queue, on: place == .loop ? loop : nil)
        } else if let line, !line.isIdle(orElse: { [weak self] in self?.askForTurn() }) {
            // The delegate has come inline: what waits for the queue that it had goes first.
        } else if place != .caller {
            deliver()
        } else {
            askForTurn()
        }
    }

    /// Tells the delegate here and now, and does what it asks for in return.
    private func deliver() {
        var delivered = 0
        var audience = relay.gatherAudience()
        audience.beginCallbacks(of: self)
        while delivered < Self.deliveryLimit, relay.isInline(&audience), deliverNext(to: &audience) {
            delivered += 1
            // What is queued in several callbacks is served together.
            if outbox.isEmpty { pumpIfNeeded() }
        }
        audience.endCallbacks()
        if !outbox.isEmpty { askForTurn() }
    }

    /// One event, which is gone afterwards: the memory of what was read serves for what is read next. False
    /// when there is none.
    private func deliverNext(to audience: inout DelegateRelay.Audience) -> Bool {
        guard let event = outbox.popFirst() else { return false }
        isCallingUser = true
        relay.deliver(event, to: &audience)
        isCallingUser = false
        return true
    }

    /// Makes known how far the current read and write have come.
    func publishProgress() {
        let progress = currentProgress
        facts.withLock { $0.progress = progress }
    }

    private var currentProgress: ConnectionFacts.Progress {
        ConnectionFacts.Progress(
            read: reads.progress, write: writes.progress, waitingByteCount: writes.queue.waitingByteCount)
    }

    /// Leaves the loop once nothing waits to be delivered on it.
    func retireIfSilent() {
        guard outbox.isEmpty, let registration else { return }
        loop.deregister(registration)
    }

    // MARK: - From the delegate, or anybody

    func read(_ packet: consuming ReadPacket) {
        if entersFromCallback() {
            enqueue(packet)
            isCallingUser = true
        } else {
            post(.read(packet))
        }
    }

    func write(_ packet: consuming WritePacket) {
        if entersFromCallback() {
            enqueue(packet)
            isCallingUser = true
        } else {
            post(.write(packet))
        }
    }

    /// True when the delegate is being called here, and what it asks for can be done without a message. Set
    /// `isCallingUser` afterwards.
    private func entersFromCallback() -> Bool {
        guard turn.isOpen(within: self), !isOver else { return false }
        isCallingUser = false
        return true
    }

    /// Inside the turn: it has ended, whoever may not know yet.
    var isOver: Bool {
        if case .closed = phase { true } else { false }
    }

    /// Inside the turn: true while this is the socket's connection for sure.
    var isCurrent: Bool { !isOver && !relay.isSuperseded }

    /// How far the oldest operations have come. In a callback, as things are there; otherwise as they were at
    /// the end of the last turn.
    var progress: ConnectionFacts.Progress {
        turn.isCallingUser(of: self) ? currentProgress : facts.withLock { $0.progress }
    }
}

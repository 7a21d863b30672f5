internal import SocketBuffers

/// One direction of a relay, which runs on its own thread.
final class RelayDirection: Sendable {
    private let source: RawSocket
    private let destination: RawSocket
    private let plan: TamperingPlan
    private let side: WireTranscript.Side
    private let state: RelayState

    init(
        from source: RawSocket,
        to destination: RawSocket,
        _ tamperings: [Tampering],
        _ side: WireTranscript.Side,
        _ state: RelayState
    ) {
        self.source = source
        self.destination = destination
        plan = TamperingPlan(tamperings)
        self.side = side
        self.state = state
    }

    /// Forwards bytes until the source closes or either socket fails.
    func run() {
        do throws(LoopbackError) {
            try forward()
            state.endDirection(nil)
        } catch {
            source.resetWhenClosed()
            destination.resetWhenClosed()
            state.waitLimit.stop?.fire()
            state.endDirection(error)
        }
    }

    private func forward() throws(LoopbackError) {
        var plan = plan
        try perform(plan.actions(for: []))
        while true {
            let bytes = try source.receive()
            if bytes.isEmpty { return destination.finish() }
            state.original.withLock { $0.add(bytes, from: side) }
            try perform(plan.actions(for: bytes))
        }
    }

    private func perform(_ actions: [TamperingPlan.Action]) throws(LoopbackError) {
        for action in actions {
            switch action {
            case .forward(let bytes):
                // Recorded before sending, so that a byte is in the transcript when the other side receives
                // it.
                state.delivered.withLock { $0.add(bytes, from: side) }
                try destination.send(bytes)
            case .hold(let signal): try state.waitLimit.wait(for: signal)
            case .finish: destination.finish()
            case .reset: throw LoopbackError(.reset, "the relay reset the connections as requested", operation: "reset")
            }
        }
    }
}

/// The state shared by both directions of a relay.
final class RelayState: Sendable {
    let waitLimit: WaitLimit
    /// Fires when both directions are closed.
    let done: TestSignal
    let original = Locked(WireTranscript())
    let delivered = Locked(WireTranscript())
    private let outcome = Locked((open: 2, failure: LoopbackError?.none))

    init(timeout: Duration) throws(LoopbackError) {
        waitLimit = WaitLimit(timeout: timeout, stop: try TestSignal())
        done = try TestSignal()
    }

    var failure: LoopbackError? { outcome.withLock { $0.failure } }

    /// Stops the relay because a connection could not be established.
    func abandon(_ error: LoopbackError) {
        outcome.withLock { $0.failure = error.code == .stopped ? nil : error }
        done.fire()
    }

    /// Marks one direction as closed. A reset and a stop are regular outcomes; any other error is a failure.
    func endDirection(_ error: LoopbackError?) {
        let isLast = outcome.withLock { outcome in
            if let error, error.code != .reset, error.code != .stopped, outcome.failure == nil { outcome.failure = error }
            outcome.open -= 1
            return outcome.open == 0
        }
        if isLast { done.fire() }
    }
}

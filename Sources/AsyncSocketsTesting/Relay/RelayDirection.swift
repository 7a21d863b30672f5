internal import SocketBuffers

/// One direction of a relay, performed on a thread of its own.
final class RelayDirection: Sendable {
    private let source: LoopbackSocket
    private let destination: LoopbackSocket
    private let plan: TamperingPlan
    private let side: WireTranscript.Side
    private let state: RelayState

    init(
        from source: LoopbackSocket,
        to destination: LoopbackSocket,
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

    /// Returns when the source has ended, or either socket is broken.
    func run() {
        do throws(LoopbackError) {
            try forward()
            state.endDirection(nil)
        } catch {
            source.resetWhenClosed()
            destination.resetWhenClosed()
            state.patience.stop?.fire()
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
                // Written down first: who has received a byte finds it in the transcript.
                state.delivered.withLock { $0.add(bytes, from: side) }
                try destination.send(bytes)
            case .hold(let signal): try state.patience.wait(for: signal)
            case .finish: destination.finish()
            case .reset: throw LoopbackError(.reset, "The relay was told to reset the connections.", operation: "reset")
            }
        }
    }
}

/// What the two directions of a relay share.
final class RelayState: Sendable {
    let patience: Patience
    /// Given when both directions are over.
    let done: TestSignal
    let original = Locked(WireTranscript())
    let delivered = Locked(WireTranscript())
    private let outcome = Locked((open: 2, failure: LoopbackError?.none))

    init(timeout: Duration) throws(LoopbackError) {
        patience = Patience(timeout: timeout, stop: try TestSignal())
        done = try TestSignal()
    }

    var failure: LoopbackError? { outcome.withLock { $0.failure } }

    /// The connection was not even made.
    func abandon(_ error: LoopbackError) {
        outcome.withLock { $0.failure = error.code == .stopped ? nil : error }
        done.fire()
    }

    /// One direction is over. A reset and a stop are ways to end, everything else is a failure.
    func endDirection(_ error: LoopbackError?) {
        let isLast = outcome.withLock { outcome in
            if let error, error.code != .reset, error.code != .stopped, outcome.failure == nil { outcome.failure = error }
            outcome.open -= 1
            return outcome.open == 0
        }
        if isLast { done.fire() }
    }
}

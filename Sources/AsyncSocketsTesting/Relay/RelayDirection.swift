internal import SocketBuffers

/// One direction of a relay, performed on a thread of its own.
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

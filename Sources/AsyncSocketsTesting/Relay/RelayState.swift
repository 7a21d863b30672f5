internal import SocketBuffers

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

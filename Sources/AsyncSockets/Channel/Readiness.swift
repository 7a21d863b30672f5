internal import SocketCore

/// Whether bytes may be available to receive.
enum InputReadiness {
    /// The kernel has no bytes, as far as is known.
    case quiet
    /// The kernel has signaled that bytes are available, and no later call has found otherwise.
    case ready
    /// The limit on the rate of reading is reached. The kernel may have bytes.
    case paused(until: Deadline?)
    case endOfFile
    /// A FIN was received, and the engine decides how to treat it.
    case judged
    /// The peer sent close_notify.
    case closed
    /// A FIN was received without a preceding close_notify.
    case truncated(AsyncSocketError)
    case failed(AsyncSocketError)

    var isEnded: Bool {
        switch self {
        case .quiet, .ready, .paused, .judged: false
        case .endOfFile, .closed, .truncated, .failed: true
        }
    }

    var isFailed: Bool { if case .failed = self { true } else { false } }

    var error: AsyncSocketError? {
        switch self {
        case .truncated(let error), .failed(let error): error
        case .endOfFile, .closed: .closedByPeer
        case .quiet, .ready, .paused, .judged: nil
        }
    }

    var isPaused: Bool { if case .paused = self { true } else { false } }

    /// Whether a call could find bytes although no event has signaled any.
    var mayBecomeReady: Bool { if case .quiet = self { true } else { isPaused } }

    var retry: Deadline? {
        if case .paused(let deadline) = self { deadline } else { nil }
    }
}

/// Whether the kernel may have room for bytes to send.
enum OutputReadiness {
    /// The kernel accepts bytes, or no send has failed yet (`kSocketCanAcceptBytes`).
    case ready
    /// Sending can continue after the next event.
    case full
    /// The kernel was out of memory, or the limit on the rate of writing is reached. Try again later.
    case exhausted(until: Deadline?)
    indirect case failed(StreamEnding.WriteFailure)

    var isFailed: Bool {
        if case .failed = self { true } else { false }
    }

    var error: AsyncSocketError? {
        if case .failed(let failure) = self { failure.error } else { nil }
    }

    var retry: Deadline? {
        if case .exhausted(let deadline) = self { deadline } else { nil }
    }
}

internal import SocketCore

/// Whether there may be bytes to receive.
enum InputReadiness {
    /// The kernel has none, as far as is known.
    case quiet
    /// The kernel may have bytes: it has said so, and has not said since that there are none.
    case ready
    /// A FIN was received.
    case endOfFile
    /// A FIN was received, and the engine judges what that means.
    case judged
    /// The peer has sent close_notify.
    case closed
    /// A FIN was received without a close_notify before it.
    case truncated(AsyncSocketError)
    case failed(AsyncSocketError)

    var isEnded: Bool {
        switch self {
        case .quiet, .ready, .judged: false
        case .endOfFile, .closed, .truncated, .failed: true
        }
    }

    var isFailed: Bool { if case .failed = self { true } else { false } }

    var error: AsyncSocketError? {
        switch self {
        case .truncated(let error), .failed(let error): error
        case .endOfFile, .closed: .closedByPeer
        case .quiet, .ready, .judged: nil
        }
    }
}

/// Whether there may be room for bytes to send.
enum OutputReadiness {
    /// The kernel takes bytes, or has not yet said that it does not (`kSocketCanAcceptBytes`).
    case ready
    /// An event says when to go on.
    case full
    /// The kernel had no memory: to be tried again.
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

/// The phase of a connection, regardless of TLS.
enum ConnectionPhase {
    /// Newly created and not yet used.
    case idle
    /// Connecting or, with a proxy, negotiating a tunnel to the target.
    case establishing(Establishing)
    /// Established (`kConnected`).
    case established
    /// Closed, with the error if it failed. This phase is final.
    case closed(AsyncSocketError?)

    var isIdle: Bool { if case .idle = self { true } else { false } }
    var isEstablished: Bool { if case .established = self { true } else { false } }
    var isClosed: Bool { if case .closed = self { true } else { false } }
    var establishing: Establishing? { if case .establishing(let establishing) = self { establishing } else { nil } }

    /// The error for an operation that is requested after the close, or dropped by the close.
    var endError: AsyncSocketError { if case .closed(let error?) = self { error } else { .closed } }
}

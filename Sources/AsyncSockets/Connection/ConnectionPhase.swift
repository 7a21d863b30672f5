/// The phase of a connection, TLS apart.
enum ConnectionPhase {
    /// New, with nothing to do yet.
    case idle
    /// On its way to a descriptor or, through a proxy, to its target.
    case establishing(Establishing)
    /// It is established (`kConnected`).
    case established
    /// It has ended; nothing changes any more.
    case closed(AsyncSocketError?)

    var isIdle: Bool { if case .idle = self { true } else { false } }
    var isEstablished: Bool { if case .established = self { true } else { false } }
    var isClosed: Bool { if case .closed = self { true } else { false } }
    var establishing: Establishing? { if case .establishing(let establishing) = self { establishing } else { nil } }

    /// The error of an operation that comes after the end, or that the end dropped.
    var endError: AsyncSocketError { if case .closed(let error?) = self { error } else { .closed } }
}

internal import FoundationEssentials
internal import SocketCore
internal import SocketTLS

/// An event for the delegate, as a plain value, so that it can be stored until the state it describes is
/// consistent.
///
/// Rare events are indirect to keep frequent events small, because each event is moved several times.
enum DelegateEvent: Sendable {
    case didAccept(AcceptedConnection)
    case didStopListening(Listener)
    indirect case didConnect(host: String, port: UInt16)
    indirect case didConnectToPath(String)
    indirect case progressed(ConnectionProgress)
    case didRead(Data, tag: Int)
    case didReadBytes(LentBytes, tag: Int)
    case didReadPartial(Int, tag: Int)
    indirect case didNotRead(Data, tag: Int, AsyncSocketError)
    case didCloseReadStream
    case didWrite(tag: Int)
    case didWritePartial(Int, tag: Int)
    case highWater(Int)
    case lowWater(Int)
    indirect case readTimedOut(TimedOutOperation)
    indirect case writeTimedOut(TimedOutOperation)
    indirect case didReceiveTrust(PeerTrust, answer: @Sendable (Bool) -> Void)
    case didSecure
    indirect case didReceiveClientCertificate(Result<TLSSession, AsyncSocketError>)
    case didDisconnect(AsyncSocketError?)
}

/// A read or write that has timed out, with a closure for the delegate's decision.
struct TimedOutOperation: Sendable {
    let tag: Int
    let elapsed: TimeInterval
    let bytesDone: Int
    /// Called with the number of seconds by which to extend the operation.
    let answer: @Sendable (TimeInterval) -> Void

    init(_ late: LateOperation, answer: @escaping @Sendable (TimeInterval) -> Void) {
        tag = late.progress.tag
        elapsed = late.elapsed
        bytesDone = late.progress.bytesDone
        self.answer = answer
    }
}

extension DelegateEvent: SocketEvent {
    var isEnd: Bool {
        switch self {
        case .didDisconnect, .didStopListening: true
        case .didAccept, .didConnect, .didConnectToPath, .progressed, .didRead, .didReadBytes, .didReadPartial,
            .didNotRead, .didCloseReadStream, .didWrite, .didWritePartial, .highWater, .lowWater, .readTimedOut, .writeTimedOut,
            .didReceiveTrust, .didSecure, .didReceiveClientCertificate:
            false
        }
    }

    func claimEnd() -> Bool {
        if case .didStopListening(let listener) = self { listener.claimEnd() } else { true }
    }

    var isProgress: Bool {
        switch self {
        case .didReadPartial, .didWritePartial: true
        default: false
        }
    }

    mutating func absorb(_ next: DelegateEvent) -> Bool {
        switch (self, next) {
        case (.didReadPartial(let count, let tag), .didReadPartial(let more, let other)) where tag == other:
            self = .didReadPartial(count + more, tag: tag)
        case (.didWritePartial(let count, let tag), .didWritePartial(let more, let other)) where tag == other:
            self = .didWritePartial(count + more, tag: tag)
        default: return false
        }
        return true
    }
}

// Rules of closing:
//  1. Bytes received before the end stay readable, whatever the reason for the end. The end takes effect
//     once they are read. If a task's read can no longer complete because of an orderly close or a
//     truncation, the read is abandoned, and its bytes stay for the next read.
//  2. A read to the end completes with an orderly close (a FIN or, with TLS, a close_notify). Any other end
//     abandons it with the reason.
//  3. After an orderly close or a truncation, only the read side closes if half-close is allowed and our
//     side is open. That is reported once, and pending reads are abandoned with the reason. The connection
//     closes when our side is finished too. If the stream was truncated and no read received that error, the
//     connection closes with that error.
//  4. A close requested by the caller takes precedence over any other end. Once its conditions are met, the
//     connection closes in an orderly way.
//  5. A file that can no longer be read closes the connection immediately, even if there are unread bytes.
//  6. A failed write closes the connection once no earlier received byte can still be read: the kernel has
//     no bytes that a read needs, and no bytes are unread. Unread bytes delay the close, but only for the
//     grace period if a write is pending.
//  7. If the peer has closed and a write has failed, the peer's close is reported, because it preceded and
//     caused the failure. If only the read side has closed (rule 3), the write error is reported, unless the
//     read side was truncated and no read received the truncation error.
//  8. A hangup closes the connection if the kernel has an error for it, once no more bytes can be received
//     for a read (after the end of input, or while `startTLS` is waiting) and no bytes are unread.
//  9. A lingering close protects the last bytes sent from being overtaken by a reset. It is used for an
//     alert, for an abandoned handshake or dialogue, and for data that the caller wanted to be sent before
//     the close. A broken file causes a reset, and so does a failed relay.

internal import SocketCore

/// Decides how and when a connection closes. A value type that receives facts and returns actions.
struct StreamEnding {
    /// Why no more bytes will be received (`kSocketHasReadEOF`).
    enum ReadEnd {
        /// The peer closed its side, with a FIN or, with TLS, a close_notify.
        case orderly
        /// A FIN without a preceding close_notify. Bytes may be missing. Our side may continue.
        case truncated(AsyncSocketError)
        /// A reset, an alert, or bytes that are not TLS.
        case failed(AsyncSocketError)

        var error: AsyncSocketError {
            switch self {
            case .orderly: .closedByPeer
            case .truncated(let error), .failed(let error): error
            }
        }

        var isOrderly: Bool { if case .orderly = self { true } else { false } }

        /// Whether the peer may still receive data.
        var isOfOneSide: Bool { if case .failed = self { false } else { true } }
    }

    /// Why no more bytes can be sent.
    struct WriteFailure {
        let error: AsyncSocketError
        /// Whether a file being sent can no longer be read, so the peer received only part of the data.
        let isFileBroken: Bool

        init(_ error: AsyncSocketError, isFileBroken: Bool) {
            self.error = error
            self.isFileBroken = isFileBroken
        }
    }

    enum Event {
        case readEnded(ReadEnd)
        case writeFailed(WriteFailure)
        /// The kernel reported that the connection is broken in both directions.
        case hangup
        /// Our FIN was sent.
        case finishedWriting
        /// The caller requested a close.
        case wanted(CloseIntent)
        /// A read was requested. The grace period restarts with the next unread byte.
        case readAsked
        /// TLS starts. An end of input noted earlier no longer applies: the engine decides how the connection
        /// closes.
        case secured
    }

    struct Situation {
        enum Reads {
            /// A read is pending, and bytes may arrive for it.
            case waiting
            case waitingForEnd
            /// `startTLS` is waiting for earlier writes.
            case atStartTLS
            case idle
        }

        var reads = Reads.idle
        /// Whether there are received bytes for which no read was requested.
        var hasUnreadBytes = false
        /// Whether the pending read holds bytes that stay for the next read if it is abandoned.
        var readLeavesBytes = false
        /// Whether the kernel may have bytes that are needed now.
        var mayReceive = false
        /// Whether a limit on the rate keeps them there for some time.
        var isInputPaused = false
        var hasWrites = false
        var allowsHalfClose = false
        var gracePeriod = 1.0
        /// If `nil`, the clock is read when needed.
        var now: Deadline?
    }

    enum Action {
        case completeReadToEnd
        case abandonRead(AsyncSocketError)
        case reportClosedReadSide
        /// Read the socket error from the kernel, and close the connection if an error is set.
        case askKernel
        case close(AsyncSocketError?)
    }

    enum Parting {
        case atOnce
        case lingering
        case reset
    }

    private(set) var readEnd: ReadEnd?
    // An `Optional` would reserve space for the whole error in each connection.
    private indirect enum Failure {
        case none
        case some(WriteFailure)
    }
    private var failure = Failure.none
    private(set) var intent: CloseIntent?
    private var hasHangup = false
    private var hasFinishedWriting = false
    /// Whether the close of the read side was reported (`kReadStreamClosed`).
    private var hasReportedReadSide = false
    /// Whether, since the last read was requested, the end of input has completed a read to the end or the
    /// read side was reported as closed. If so, the remaining reads to the end are treated like other reads.
    private var hasCompletedReadToEnd = false
    /// Whether a read was abandoned because of the end, so the caller knows the reason.
    private var hasToldReader = false
    /// When a failed write closes the connection despite unread bytes.
    private(set) var wakeTime: Deadline?

    var writeFailure: WriteFailure? {
        if case .some(let failure) = failure { failure } else { nil }
    }

    /// `false` if no known fact could close the connection.
    var mayDecide: Bool {
        if readEnd != nil || intent != nil || hasHangup { return true }
        if case .some = failure { return true }
        return false
    }

    var isWritingFinished: Bool { hasFinishedWriting }

    mutating func note(_ event: Event) {
        switch event {
        case .readEnded(let end): readEnd = end
        case .writeFailed(let failure): self.failure = .some(failure)
        case .hangup: hasHangup = true
        case .finishedWriting: hasFinishedWriting = true
        case .wanted(let intent): self.intent = (self.intent ?? []).union(intent)
        case .readAsked: (wakeTime, hasCompletedReadToEnd) = (nil, false)
        case .secured: (readEnd, hasToldReader) = (nil, false)
        }
    }

    /// Returns the next action, or `nil` after the last action. Call this again after each action,
    /// with the new situation.
    mutating func decide(_ situation: Situation) -> Action? {
        if let action = decideReads(situation) { return action }
        if let intent, intent.isMet(readsDone: situation.reads == .idle, writesDone: !situation.hasWrites) {
            return .close(untoldTruncation)
        }
        if let writeFailure, writeFailure.isFileBroken { return .close(writeFailure.error) }
        let isHalfOpen = isHalfOpen(situation)
        if let readEnd, isExhausted(situation), !isHalfOpen {
            if case .truncated = readEnd, hasReportedReadSide { return .close(untoldTruncation) }
            return .close(readEnd.error)
        }
        if let writeFailure, !mayStillRead(situation) {
            return .close(isHalfOpen ? untoldTruncation ?? writeFailure.error : readEnd?.error ?? writeFailure.error)
        }
        if hasHangup, readEnd != nil || situation.reads == .atStartTLS, !situation.hasUnreadBytes {
            hasHangup = false
            return .askKernel
        }
        return nil
    }

    /// Rules 1 to 3.
    private mutating func decideReads(_ situation: Situation) -> Action? {
        guard let readEnd else { return nil }
        if situation.reads == .waitingForEnd, !hasCompletedReadToEnd {
            hasCompletedReadToEnd = true
            return readEnd.isOrderly ? .completeReadToEnd : abandonRead(readEnd)
        }
        guard isHalfOpen(situation), isExhausted(situation) else {
            guard situation.readLeavesBytes, readEnd.isOfOneSide else { return nil }
            return abandonRead(readEnd)
        }
        if !hasReportedReadSide {
            (hasReportedReadSide, hasCompletedReadToEnd) = (true, true)
            return .reportClosedReadSide
        }
        return situation.reads == .idle ? nil : abandonRead(readEnd)
    }

    private mutating func abandonRead(_ end: ReadEnd) -> Action {
        hasToldReader = true
        return .abandonRead(end.error)
    }

    /// The truncation error, if the read side was reported as closed and no read received the error.
    var untoldTruncation: AsyncSocketError? {
        if case .truncated(let error) = readEnd, hasReportedReadSide, !hasToldReader { error } else { nil }
    }

    private func isHalfOpen(_ situation: Situation) -> Bool {
        situation.allowsHalfClose && !hasFinishedWriting && readEnd?.isOfOneSide == true
    }

    private func isExhausted(_ situation: Situation) -> Bool {
        switch situation.reads {
        case .waiting, .waitingForEnd: true
        case .atStartTLS: false
        case .idle: !situation.hasUnreadBytes
        }
    }

    /// Rule 6.
    private mutating func mayStillRead(_ situation: Situation) -> Bool {
        guard situation.hasUnreadBytes || situation.isInputPaused && situation.mayReceive else { return situation.mayReceive }
        guard situation.hasWrites else {
            wakeTime = nil
            return true
        }
        let now = situation.now ?? .now
        let end = wakeTime ?? Deadline(after: situation.gracePeriod, from: now)
        wakeTime = end
        guard let end else { return true }
        return end > now
    }

    /// Rule 9.
    func parting(with error: AsyncSocketError?) -> Parting {
        if let writeFailure, writeFailure.isFileBroken { return .reset }
        if intent?.contains(.afterWrites) == true { return .lingering }
        guard let error else { return .atOnce }
        if error.isOfTLS { return .lingering }
        // Most closes are orderly, and that check is fast.
        let isHandshakes =
            !error.isOrderlyEnd
            && (error.code == .handshakeTimeout || error.code == .tooManyHandshakes || error.code == .startTLSFailed)
        return isHandshakes ? .lingering : .atOnce
    }
}

/// When a connection must close, as requested by its caller (`kDisconnectAfterReads`,
/// `kDisconnectAfterWrites`).
///
/// Once an intent is set, new reads and writes are rejected (`kForbidReadsWrites`).
struct CloseIntent: OptionSet, Sendable {
    let rawValue: UInt8

    /// After every queued read is complete.
    static let afterReads = CloseIntent(rawValue: 1 << 0)
    /// After every queued write is complete.
    static let afterWrites = CloseIntent(rawValue: 1 << 1)

    /// Immediately, although the program did not call `disconnect()`. If queued bytes are dropped, a secure
    /// connection sends no close_notify, so that the peer detects a truncation.
    static let abandoned = CloseIntent(rawValue: 1 << 2)

    /// Immediately, with a reset: the peer must not take a FIN or a close_notify for the end of the data.
    static let reset = CloseIntent(rawValue: 1 << 3)

    var isAtOnce: Bool { isSubset(of: [.abandoned, .reset]) }

    func isMet(readsDone: Bool, writesDone: Bool) -> Bool {
        (!contains(.afterReads) || readsDone) && (!contains(.afterWrites) || writesDone)
    }
}

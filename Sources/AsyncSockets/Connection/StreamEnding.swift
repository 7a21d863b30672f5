// Rules of an ending:
//  1. Bytes that came before the end stay readable, whatever the end was. The end counts once they are read.
//     The read of a task that an orderly end leaves incomplete is given up, and what it has is for the next.
//  2. A read to the end is complete with an orderly end (a FIN or, with TLS, a close_notify). Any other end
//     gives it up, with the reason.
//  3. After an orderly end and after a truncation, where half-close is allowed and our side is open, only the
//     read side closes. That is delivered once, and reads that wait are given up, with the reason. The
//     connection ends when our side is finished too; with a truncation that no read has met, if there is one.
//  4. The caller's wish comes before any other end: once what it waits for is done, the connection ends in
//     good order.
//  5. A file that cannot be read any more ends the connection at once, unread bytes or not.
//  6. A write that has failed ends the connection when no byte that came before can still be read: the kernel
//     has none that is wanted, and none lies unread. Unread bytes hold up the end, but for the grace period
//     only while a write waits.
//  7. If the peer has closed and a write has failed, the peer's close is delivered, because it came first and
//     made the write fail. If only the read side has closed (rule 3), the error of the write is delivered,
//     unless the read side was truncated and no read has received that error.
//  8. A hangup ends the connection if the kernel knows an error, once nothing can be received for a read:
//     after the end of the input, or while `startTLS` waits; and if no byte lies unread.
//  9. The last thing sent lingers, so that a reset does not overtake it: an alert, a handshake given up, the
//     end of the data that the caller waited for. A broken file is a reset.

internal import SocketCore

/// How and when a connection ends: a value that takes facts and decides.
struct StreamEnding {
    /// Why no byte will follow those that were received (`kSocketHasReadEOF`).
    enum ReadEnd {
        /// The peer has closed its side: a FIN or, with TLS, a close_notify.
        case orderly
        /// A FIN without a close_notify before it: bytes may be missing. Our side may go on.
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

        /// The peer may still take what we send.
        var isOfOneSide: Bool { if case .failed = self { false } else { true } }
    }

    /// Why no byte can be sent any more.
    struct WriteFailure {
        let error: AsyncSocketError
        /// A file that was being sent cannot be read any more: what the peer has is cut short.
        let isFileBroken: Bool

        init(_ error: AsyncSocketError, isFileBroken: Bool) {
            self.error = error
            self.isFileBroken = isFileBroken
        }
    }

    enum Event {
        case readEnded(ReadEnd)
        case writeFailed(WriteFailure)
        /// The kernel says that the connection is broken in both directions.
        case hangup
        /// Our FIN has been sent.
        case finishedWriting
        /// The caller wants an end.
        case wanted(CloseIntent)
        /// Someone wants to read: the grace period begins again with the next byte that no read takes.
        case readAsked
        /// TLS begins: only the plaintext has ended, and the engine decides how the stream ends.
        case secured
    }

    /// The state of the two halves now.
    struct Situation {
        enum Reads {
            /// A read waits, and bytes may come for it.
            case waiting
            case waitingForEnd
            /// `startTLS` waits for the writes before it.
            case atStartTLS
            /// No read waits.
            case idle
        }

        var reads = Reads.idle
        /// Bytes wait for a read that has not been asked for.
        var hasUnreadBytes = false
        /// The read that waits has bytes, and leaves them to the next one when it is given up.
        var readLeavesBytes = false
        /// The kernel may have bytes that are wanted now.
        var mayReceive = false
        /// A write waits.
        var hasWrites = false
        var allowsHalfClose = false
        var gracePeriod = 1.0
        /// Nil: ask the clock, when it matters.
        var now: Deadline?
    }

    enum Action {
        /// The read to the end that waits is complete.
        case completeReadToEnd
        /// The read that waits is given up.
        case abandonRead(AsyncSocketError)
        case reportClosedReadSide
        /// Ask the kernel why, and end the connection if it knows.
        case askKernel
        case close(AsyncSocketError?)
    }

    /// How the descriptor is closed.
    enum Parting {
        case atOnce
        case lingering
        case reset
    }

    private(set) var readEnd: ReadEnd?
    // An `Optional` would keep room for the whole error in each connection.
    private indirect enum Failure {
        case none
        case some(WriteFailure)
    }
    private var failure = Failure.none
    private(set) var intent: CloseIntent?
    private var hasHangup = false
    private var hasFinishedWriting = false
    /// The closed read side was delivered (`kReadStreamClosed`).
    private var hasReportedReadSide = false
    /// A read to the end is complete with the end, once. Those that wait when that is done, or when the read
    /// side is closed, are reads like others.
    private var hasCompletedReadToEnd = false
    /// A read was given up because of the end, which its caller knows from then on.
    private var hasToldReader = false
    /// When a failed write ends the connection although bytes lie unread.
    private(set) var wakeTime: Deadline?

    var writeFailure: WriteFailure? {
        if case .some(let failure) = failure { failure } else { nil }
    }

    /// False while nothing is known that could end the connection.
    var mayDecide: Bool {
        if readEnd != nil || intent != nil || hasHangup { return true }
        if case .some = failure { return true }
        return false
    }

    /// True once our FIN has been sent.
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

    /// The action to take now; nil: none, or no more. Ask again after each action, with the new situation.
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

    /// The truncation, if the caller knows of the end and not of that.
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
        guard situation.hasUnreadBytes else { return situation.mayReceive }
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
        // Most ends are orderly, and that is quickly found out.
        let isHandshakes = !error.isOrderlyEnd && (error.code == .handshakeTimeout || error.code == .tooManyHandshakes)
        return isHandshakes ? .lingering : .atOnce
    }
}

/// When a connection is to end, as its caller asked (`kDisconnectAfterReads`, `kDisconnectAfterWrites`).
///
/// From the moment one is set, no new read or write is accepted (`kForbidReadsWrites`).
struct CloseIntent: OptionSet, Sendable {
    let rawValue: UInt8

    /// Once every queued read is complete.
    static let afterReads = CloseIntent(rawValue: 1 << 0)
    /// Once every queued write is complete.
    static let afterWrites = CloseIntent(rawValue: 1 << 1)

    /// Immediately, although the program did not call `disconnect()`. If queued bytes are dropped, a secure
    /// connection sends no close_notify, and the peer detects a truncation.
    static let abandoned = CloseIntent(rawValue: 1 << 2)

    var isAtOnce: Bool { isSubset(of: .abandoned) }

    /// True when what it waits for is done.
    func isMet(readsDone: Bool, writesDone: Bool) -> Bool {
        (!contains(.afterReads) || readsDone) && (!contains(.afterWrites) || writesDone)
    }
}

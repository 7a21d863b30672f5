import SocketCore

@testable import AsyncSockets

/// Simulates the ending of a connection: takes facts as input and returns the steps performed. Time is also
/// an input.
struct EndingTranscript {
    enum Step: Equatable {
        case completeReadToEnd
        case abandonRead(AsyncSocketError.Code)
        case closeReadSide
        case askKernel
        case close(AsyncSocketError.Code?)
    }

    private(set) var ending = StreamEnding()
    /// The waiting reads, oldest first.
    var reads: [StreamEnding.Situation.Reads] = []
    /// Whether there are unread bytes.
    var hasUnreadBytes = false
    /// Whether the reads belong to tasks and each leaves some bytes.
    var readsLeaveBytes = false
    /// Whether the kernel may have data.
    var mayReceive = false
    var hasWrites = false
    var allowsHalfClose = false
    var gracePeriod = 1.0
    /// Seconds since the start.
    var time = 0.0
    private let start = Deadline.now

    init(
        reads: [StreamEnding.Situation.Reads] = [], hasUnreadBytes: Bool = false, mayReceive: Bool = false,
        hasWrites: Bool = false, allowsHalfClose: Bool = false, gracePeriod: Double = 1
    ) {
        (self.reads, self.hasUnreadBytes, self.mayReceive) = (reads, hasUnreadBytes, mayReceive)
        (self.hasWrites, self.allowsHalfClose, self.gracePeriod) = (hasWrites, allowsHalfClose, gracePeriod)
    }

    /// Reports events and returns the resulting steps.
    mutating func hear(_ events: StreamEnding.Event...) -> [Step] {
        for event in events { ending.note(event) }
        return decide()
    }

    /// The caller reads all unread bytes.
    mutating func readEverything() -> [Step] {
        hasUnreadBytes = false
        return hear(.readAsked)
    }

    /// The caller reads some of the unread bytes.
    mutating func readSome() -> [Step] {
        hear(.readAsked)
    }

    /// The caller requests a read for which there is no data.
    mutating func ask(for read: StreamEnding.Situation.Reads) -> [Step] {
        reads.append(read)
        return hear(.readAsked)
    }

    mutating func wait(until time: Double) -> [Step] {
        self.time = time
        return decide()
    }

    /// Performs steps until there are no more, as the connection does.
    mutating func decide() -> [Step] {
        var steps: [Step] = []
        while steps.count < 10, let action = ending.decide(situation) {
            switch action {
            case .completeReadToEnd:
                steps.append(.completeReadToEnd)
                reads.removeFirst()
            case .abandonRead(let error):
                steps.append(.abandonRead(error.code))
                reads.removeFirst()
                if readsLeaveBytes { hasUnreadBytes = true }
            case .reportClosedReadSide: steps.append(.closeReadSide)
            case .askKernel: steps.append(.askKernel)
            case .close(let error): return steps + [.close(error?.code)]
            }
        }
        return steps
    }

    /// When the ending must be evaluated again, in seconds since the start.
    var wakeTime: Double? {
        ending.wakeTime.map { ($0.seconds(since: start) * 1000).rounded() / 1000 }
    }

    private var situation: StreamEnding.Situation {
        StreamEnding.Situation(
            reads: reads.first ?? .idle, hasUnreadBytes: hasUnreadBytes && reads.isEmpty,
            readLeavesBytes: readsLeaveBytes && !reads.isEmpty,
            mayReceive: mayReceive && ending.readEnd == nil && reads.first != .atStartTLS, hasWrites: hasWrites,
            allowsHalfClose: allowsHalfClose, gracePeriod: gracePeriod, now: Deadline(after: time, from: start) ?? start)
    }
}

extension StreamEnding.Event {
    static let finReceived = Self.readEnded(.orderly)
    static let resetReceived = Self.readEnded(.failed(.played(.connectionReset)))
    static let truncated = Self.readEnded(.truncated(.played(.truncated)))
    static let sendFailed = Self.writeFailed(.init(.played(.system), isFileBroken: false))
    static let fileBroken = Self.writeFailed(.init(.played(.badParameter), isFileBroken: true))
}

extension AsyncSocketError {
    /// Returns an error of which only the code matters.
    static func played(_ code: Code, tls: TLSError? = nil) -> AsyncSocketError {
        AsyncSocketError(code, fault: .peer, operation: .read, message: "played", tls: tls)
    }
}

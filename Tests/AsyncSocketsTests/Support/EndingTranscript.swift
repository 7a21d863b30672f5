import SocketCore

@testable import AsyncSockets

/// The ending of a connection that is played: facts go in, what is done comes out. Time is an input.
struct EndingTranscript {
    enum Step: Equatable {
        case completeReadToEnd
        case abandonRead(AsyncSocketError.Code)
        case closeReadSide
        case askKernel
        case close(AsyncSocketError.Code?)
    }

    private(set) var ending = StreamEnding()
    /// The reads that wait, oldest first.
    var reads: [StreamEnding.Situation.Reads] = []
    /// Bytes that no read has taken.
    var hasUnreadBytes = false
    /// The reads are those of tasks, and each leaves bytes.
    var readsLeaveBytes = false
    /// The kernel may have bytes.
    var mayReceive = false
    var hasWrites = false
    var allowsHalfClose = false
    var gracePeriod = 1.0
    /// Seconds since the beginning.
    var time = 0.0
    private let start = Deadline.now

    init(
        reads: [StreamEnding.Situation.Reads] = [], hasUnreadBytes: Bool = false, mayReceive: Bool = false,
        hasWrites: Bool = false, allowsHalfClose: Bool = false, gracePeriod: Double = 1
    ) {
        (self.reads, self.hasUnreadBytes, self.mayReceive) = (reads, hasUnreadBytes, mayReceive)
        (self.hasWrites, self.allowsHalfClose, self.gracePeriod) = (hasWrites, allowsHalfClose, gracePeriod)
    }

    /// Notes events, and says what is done about them.
    mutating func hear(_ events: StreamEnding.Event...) -> [Step] {
        for event in events { ending.note(event) }
        return decide()
    }

    /// The caller reads what lies unread.
    mutating func readEverything() -> [Step] {
        hasUnreadBytes = false
        return hear(.readAsked)
    }

    /// The caller reads some of what lies unread.
    mutating func readSome() -> [Step] {
        hear(.readAsked)
    }

    /// The caller asks for a read, and nothing is there for it.
    mutating func ask(for read: StreamEnding.Situation.Reads) -> [Step] {
        reads.append(read)
        return hear(.readAsked)
    }

    mutating func wait(until time: Double) -> [Step] {
        self.time = time
        return decide()
    }

    /// Performs what is decided until nothing is, as the connection does it.
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

    /// When the ending wants to be asked again, in seconds since the beginning.
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
    /// An error of which only the code counts.
    static func played(_ code: Code, tls: TLSError? = nil) -> AsyncSocketError {
        AsyncSocketError(code, fault: .peer, operation: .read, message: "played", tls: tls)
    }
}

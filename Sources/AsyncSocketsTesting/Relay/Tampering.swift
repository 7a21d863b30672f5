// Rules:
//  1. `offset` counts the bytes of the source. An event at an offset happens right after the preceding
//     byte.
//  2. The bytes from one call form one segment, unless a modification splits them.
//  3. No data is forwarded after `finish` or `reset`.

/// A modification of the bytes in one direction. Offsets start at 0 and count the bytes that the sending
/// side has sent. A modification takes effect as soon as that number of bytes has passed, before the next
/// byte arrives. Modifications at the same offset are applied in the given order.
public enum Tampering: Sendable {
    /// Forwards bytes in segments of this size.
    case pieces(of: Int)
    /// Starts a new segment.
    case newSegment(at: Int)
    /// Inserts bytes that the sending side did not send, in the same segment as the surrounding bytes.
    case inject([UInt8], at: Int)
    /// Flips the bits set in `xor` in the byte at offset `at`.
    case alter(at: Int, xor: UInt8)
    /// Drops the bytes in this range.
    case drop(Range<Int>)
    /// Stops forwarding until the test fires the signal.
    case hold(at: Int, until: TestSignal)
    /// Closes the direction with FIN and drops the remaining bytes.
    case truncate(at: Int)
    /// Resets both connections.
    case reset(at: Int)
}

/// Computes the actions for the bytes in one direction.
struct TamperingPlan {
    enum Action: Equatable {
        case forward([UInt8])
        case hold(TestSignal)
        case finish
        case reset

        static func == (left: Action, right: Action) -> Bool {
            switch (left, right) {
            case (.forward(let a), .forward(let b)): a == b
            case (.hold(let a), .hold(let b)): a === b
            case (.finish, .finish), (.reset, .reset): true
            case (.forward, _), (.hold, _), (.finish, _), (.reset, _): false
            }
        }
    }

    private var offset = 0
    private var segment: [UInt8] = []
    private var hasEnded = false
    private var pieceSize = Int.max
    private var flips: [Int: UInt8] = [:]
    private var dropped: [Range<Int>] = []
    /// The events in descending order of offset, so that the next event is the last element.
    private var due: [(offset: Int, event: Event)] = []

    private enum Event {
        case newSegment
        case inject([UInt8])
        case act(Action)
    }

    init(_ tamperings: [Tampering]) {
        var events: [(offset: Int, event: Event)] = []
        for tampering in tamperings {
            switch tampering {
            case .pieces(let size): pieceSize = max(1, size)
            case .newSegment(let offset): events.append((offset, .newSegment))
            case .inject(let bytes, let offset): events.append((offset, .inject(bytes)))
            case .alter(let offset, let bits): flips[offset, default: 0] ^= bits
            case .drop(let range): dropped.append(range)
            case .hold(let offset, let signal): events.append((offset, .act(.hold(signal))))
            case .truncate(let offset): events.append((offset, .act(.finish)))
            case .reset(let offset): events.append((offset, .act(.reset)))
            }
        }
        // Sorts stably, so that events at the same offset keep the given order.
        due = events.enumerated().sorted { ($0.element.offset, $0.offset) < ($1.element.offset, $1.offset) }
            .map(\.element).reversed()
    }

    /// Returns the actions for received bytes. Call this once without bytes at the start, because an event
    /// may be due at offset 0.
    mutating func actions(for bytes: some Sequence<UInt8>) -> [Action] {
        var actions: [Action] = []
        perform(into: &actions)
        for byte in bytes where !hasEnded {
            take(byte, into: &actions)
            perform(into: &actions)
        }
        endSegment(into: &actions)
        return actions
    }

    private mutating func take(_ byte: UInt8, into actions: inout [Action]) {
        if !dropped.contains(where: { $0.contains(offset) }) { add(byte ^ (flips[offset] ?? 0), into: &actions) }
        offset += 1
    }

    private mutating func add(_ byte: UInt8, into actions: inout [Action]) {
        segment.append(byte)
        if segment.count >= pieceSize { endSegment(into: &actions) }
    }

    private mutating func perform(into actions: inout [Action]) {
        while !hasEnded, let next = due.last, next.offset <= offset {
            due.removeLast()
            switch next.event {
            case .newSegment: endSegment(into: &actions)
            case .inject(let bytes): for byte in bytes { add(byte, into: &actions) }
            case .act(let action):
                endSegment(into: &actions)
                actions.append(action)
                hasEnded = action == .finish || action == .reset
            }
        }
    }

    private mutating func endSegment(into actions: inout [Action]) {
        guard !segment.isEmpty else { return }
        actions.append(.forward(segment))
        segment = []
    }
}

// Rules:
//  1. `offset` counts the bytes of the source. An event at an offset happens right after the byte before it.
//  2. The bytes of one call leave in one segment, unless a tampering divides them.
//  3. Nothing leaves after `finish` or `reset`.

/// A change to the bytes of one direction. Offsets count the bytes that the sending side has sent, from 0. A
/// tampering happens as soon as so many bytes have passed, without waiting for the next one. Several at one
/// offset happen in the order given.
public enum Tampering: Sendable {
    /// Passes bytes on in segments of this many bytes.
    case pieces(of: Int)
    /// Begins a new segment.
    case newSegment(at: Int)
    /// Adds bytes that the sending side did not send, in the segment of the bytes around them.
    case inject([UInt8], at: Int)
    /// Flips the bits that are set in `xor`, in the byte at offset `at`.
    case alter(at: Int, xor: UInt8)
    /// Drops bytes.
    case drop(Range<Int>)
    /// Passes nothing on until the test fires the signal.
    case hold(at: Int, until: TestSignal)
    /// Ends the direction with FIN, and drops the rest.
    case truncate(at: Int)
    /// Resets both connections.
    case reset(at: Int)
}

/// Decides what happens to the bytes of one direction: bytes go in, actions come out.
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
    /// The events, by offset; the next one last.
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
        // A stable order: events at one offset keep the order given.
        due = events.enumerated().sorted { ($0.element.offset, $0.offset) < ($1.element.offset, $1.offset) }
            .map(\.element).reversed()
    }

    /// The actions for the bytes that have come. Call it without bytes at the beginning: an event may be due
    /// at offset 0.
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

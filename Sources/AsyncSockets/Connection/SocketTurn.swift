// Rules of the turn:
//  1. At most one thread is inside at any time. State that is confined to the turn needs no other
//     protection.
//  2. No thread blocks to enter. A thread that finds the turn free enters it. Any other thread posts a
//     message and continues.
//  3. Before exiting, the thread inside handles every message posted in the meantime, in order. After
//     `roundLimit` rounds it passes the rest to the owner's loop, so that no thread works for other threads
//     indefinitely.
//  4. If the caller provides a queue, turns run there with `async`, with at most one block outstanding. No
//     thread blocks on the queue.
//  5. A message posted from inside the turn is handled after the current message, never within it. While the
//     owner calls user code, no message is being handled. Messages from that code are then handled
//     immediately, unless earlier messages are pending.
//  6. Work for a later turn is passed to the owner's loop, which is woken after the thread has exited the
//     turn. If the loop were woken earlier, it would find the turn taken and post a message. The thread
//     inside would then take that message and wake the loop again.

package import Dispatch
internal import Glibc
internal import Synchronization

/// The object with the state that a turn protects.
package protocol TurnOwner: AnyObject, Sendable {
    associatedtype Message: Sendable

    /// Handles a message. Called inside the turn.
    func receive(_ message: Message)
    /// Finishes a turn when no messages are left. Called inside the turn. Returns whether the loop must
    /// schedule another turn.
    func finishTurn(on executor: TurnExecutor) -> Bool
    /// Whether user code that may post messages is being called. Used inside the turn.
    var isCallingUser: Bool { get }
    /// Schedules a turn on the loop, because messages are still pending. Called outside the turn.
    func leaveRestToLoop()
    /// Requests another turn from the loop. Callable from any thread.
    func askForTurn()
    /// Calls `drain(_:on:)` of the turn, which is a field of the owner. Callable from any thread.
    func drainTurn(on executor: TurnExecutor)
}

package enum TurnExecutor {
    case loop
    /// The queue that was passed to the turn.
    case queue
    /// The thread that posted the message.
    case caller
}

/// The state of a turn in one word: whether a thread is inside, and the pending messages. Any value other
/// than the two below is the address of the newest letter. Its lowest bit is set if no thread is inside.
private enum Gate {
    static let free: UInt = 0
    static let taken: UInt = 1
    static let isFree: UInt = 1
}

/// A pending message and a link to the message before it.
private final class Letter<Message: Sendable> {
    let message: Message
    var earlier: Unmanaged<Letter>?

    init(_ message: Message) {
        self.message = message
    }
}

/// A replacement for the serial `socketQueue` of CocoaAsyncSocket that serializes without blocking or
/// deadlocking.
///
/// With one queue per socket, `sync` deadlocks when two sockets relay to each other from two loops. It also
/// traps when a queue is re-entered or shared as a target. A turn never blocks a thread.
package struct SocketTurn<Message: Sendable>: ~Copyable, Sendable {
    // No lock, because it would cost memory in each idle connection and time in each busy connection.
    private let gate = Atomic(Gate.free)
    /// The thread inside, or zero. A thread finds its own number here only if it is inside.
    private let holder = Atomic<pthread_t>(0)
    private let queue: DispatchQueue?

    private static var roundLimit: Int { 16 }

    /// Creates a turn that runs on the thread that enters it or, if a queue is given, always on that queue.
    package init(queue: DispatchQueue?) {
        self.queue = queue
    }

    deinit {
        _ = Self.open(gate.load(ordering: .acquiring))
    }

    /// Delivers `message` to `owner`: immediately if the turn is free, and otherwise after all earlier
    /// messages.
    ///
    /// - Parameters:
    ///   - owner: The object that has this turn as a field.
    ///   - executor: Where the caller runs, for `finishTurn(on:)`. The turn's own queue takes precedence.
    package func post<Owner: TurnOwner>(_ message: Message, to owner: Owner, from executor: TurnExecutor = .caller)
    where Owner.Message == Message {
        if queue == nil, move(from: Gate.free, to: Gate.taken) {
            holder.store(pthread_self(), ordering: .relaxed)
            owner.receive(message)
            leaveOrDrain(owner, asking: owner.finishTurn(on: executor), on: executor)
        } else if isOpen(within: owner) {
            owner.receive(message)
        } else if mustDrain(afterLeaving: message) {
            guard let queue else { return drain(owner, on: executor) }
            queue.async { owner.drainTurn(on: .queue) }
        }
    }

    /// Whether all turns run on a queue provided by the caller.
    var isOnQueue: Bool { queue != nil }

    /// Enters the turn if it is free. If this returns `true`, call `leaveOrDrain` afterwards. If another
    /// thread is inside or turns run on a queue, returns `false` and has no effect.
    @inline(__always)
    func enterIfFree() -> Bool {
        guard queue == nil, move(from: Gate.free, to: Gate.taken) else { return false }
        holder.store(pthread_self(), ordering: .relaxed)
        return true
    }

    /// Exits the turn after `enterIfFree()`, and handles the messages posted in the meantime.
    ///
    /// - Parameters:
    ///   - owner: The object that has this turn as a field.
    ///   - mustAsk: Whether the loop must schedule another turn for the owner.
    func leaveOrDrain<Owner: TurnOwner>(_ owner: Owner, asking mustAsk: Bool = false, on executor: TurnExecutor = .caller)
    where Owner.Message == Message {
        if !leave() { drain(owner, asking: mustAsk, on: executor) } else if mustAsk { owner.askForTurn() }
    }

    /// Whether the caller is user code called by `owner` inside the turn and no messages are pending. Such
    /// code may act immediately.
    package func isOpen(within owner: some TurnOwner) -> Bool {
        isCallingUser(of: owner) && gate.load(ordering: .acquiring) == Gate.taken
    }

    /// Whether the caller is user code called by `owner` inside the turn.
    package func isCallingUser(of owner: some TurnOwner) -> Bool {
        holder.load(ordering: .relaxed) == pthread_self() && owner.isCallingUser
    }

    /// Posts a message. From user code inside the turn, all pending messages and then this message are
    /// handled immediately.
    func postBehindAll<Owner: TurnOwner>(_ message: Message, to owner: Owner) where Owner.Message == Message {
        guard isCallingUser(of: owner) else { return post(message, to: owner) }
        for message in Self.open(gate.exchange(Gate.taken, ordering: .acquiringAndReleasing)) { owner.receive(message) }
        owner.receive(message)
    }

    private func move(from old: UInt, to new: UInt) -> Bool {
        gate.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }

    /// Posts a message. Returns `true` if no thread was inside; the caller is inside now and must drain the
    /// turn.
    private func mustDrain(afterLeaving message: Message) -> Bool {
        let letter = Letter(message)
        let mail = UInt(bitPattern: Unmanaged.passRetained(letter).toOpaque())
        while true {
            let old = gate.load(ordering: .acquiring)
            letter.earlier = Self.newestLetter(in: old)
            if move(from: old, to: mail) { return old == Gate.free || (old != Gate.taken && old & Gate.isFree != 0) }
        }
    }

    private static func newestLetter(in gate: UInt) -> Unmanaged<Letter<Message>>? {
        UnsafeRawPointer(bitPattern: gate & ~Gate.isFree).map { .fromOpaque($0) }
    }

    /// Returns the messages in a value of the gate, oldest first, and releases their letters.
    private static func open(_ gate: UInt) -> [Message] {
        var messages: [Message] = []
        var next = newestLetter(in: gate)
        while let letter = next?.takeRetainedValue() {
            messages.append(letter.message)
            next = letter.earlier
        }
        messages.reverse()
        return messages
    }

    /// Handles the pending messages. Called inside the turn, by the owner's `drainTurn(on:)`.
    package func drain<Owner: TurnOwner>(_ owner: Owner, asking mustAsk: Bool = false, on executor: TurnExecutor)
    where Owner.Message == Message {
        var mustAsk = mustAsk
        holder.store(pthread_self(), ordering: .relaxed)
        for _ in 0..<Self.roundLimit {
            for message in Self.open(gate.exchange(Gate.taken, ordering: .acquiringAndReleasing)) { owner.receive(message) }
            if owner.finishTurn(on: executor) { mustAsk = true }
            guard leave() else { continue }
            if mustAsk { owner.askForTurn() }
            return
        }
        holder.store(0, ordering: .relaxed)
        if let queue {
            if mustAsk { owner.askForTurn() }
            return queue.async { owner.drainTurn(on: executor) }
        }
        // `leaveRestToLoop()` wakes the loop in any case, whatever `mustAsk` is.
        while case let mail = gate.load(ordering: .acquiring), !move(from: mail, to: mail | Gate.isFree) {}
        owner.leaveRestToLoop()
    }

    /// Returns `false` if messages are pending.
    private func leave() -> Bool {
        holder.store(0, ordering: .relaxed)
        if move(from: Gate.taken, to: Gate.free) { return true }
        holder.store(pthread_self(), ordering: .relaxed)
        return false
    }
}

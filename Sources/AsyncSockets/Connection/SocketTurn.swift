// Rules of the turn:
//  1. At any time at most one thread is inside; state that is confined to the turn needs no other protection.
//  2. No thread waits to get in. A thread that finds the turn free takes it; any other leaves a message and
//     goes on.
//  3. The thread inside takes every message left meanwhile, in the order they came, before it leaves; after
//     `roundLimit` rounds it leaves the rest to the owner's loop, so that no thread works for others without
//     end.
//  4. With a queue of the caller's, turns run there by `async`, at most one block outstanding; no thread
//     waits for the queue.
//  5. A message posted from inside the turn is handled after the one that is being handled, never within it.
//     Where the owner calls user code, none is being handled: what that code posts is handled at once, unless
//     other messages came before it.
//  6. Work for a later turn is left to the owner's loop, which is woken after the thread has left. Woken
//     earlier, it would find the turn taken and leave a message; the thread inside would then take that
//     message, and wake the loop again.

package import Dispatch
internal import Glibc
internal import Synchronization

/// The object whose state a turn protects.
package protocol TurnOwner: AnyObject, Sendable {
    /// A message to the owner.
    associatedtype Message: Sendable

    /// Inside the turn: does what the message says.
    func receive(_ message: Message)
    /// Inside the turn, when no message is left for the moment. True when the loop is to give it another
    /// turn.
    func finishTurn(on executor: TurnExecutor) -> Bool
    /// Inside the turn: true while user code is called that may post messages.
    var isCallingUser: Bool { get }
    /// Outside: messages are left. Have the loop post another one soon.
    func leaveRestToLoop()
    /// Anywhere: has the loop give it another turn.
    func askForTurn()
    /// Anywhere: calls `drain(_:on:)` of the turn, which is the owner's field.
    func drainTurn(on executor: TurnExecutor)
}

/// The executor that is inside a turn.
package enum TurnExecutor {
    /// The owner's event loop.
    case loop
    /// The queue that the turn was given.
    case queue
    /// The thread that posted the message.
    case caller
}

/// The state at the entrance of a turn, in one word: whether a thread is inside, and the mail. Any word but
/// the two below is the address of the newest letter, with the lowest bit set when no thread is inside.
private enum Gate {
    static let free: UInt = 0
    static let taken: UInt = 1
    static let isFree: UInt = 1
}

/// A message that waits, and the one that came before it.
private final class Letter<Message: Sendable> {
    let message: Message
    var earlier: Unmanaged<Letter>?

    init(_ message: Message) {
        self.message = message
    }
}

/// The serial `socketQueue` of CocoaAsyncSocket without its deadlocks: it serialises, and it never blocks.
///
/// A `sync` on a queue for each socket deadlocks when two sockets relay to each other from two loops, and
/// traps when a queue is re-entered or shared as a target. Here no thread waits.
package struct SocketTurn<Message: Sendable>: ~Copyable, Sendable {
    // No lock: an idle connection has no room for one, and a busy one no time.
    private let gate = Atomic(Gate.free)
    /// The thread inside; zero: none. A thread finds its own number here only if it is inside.
    private let holder = Atomic<pthread_t>(0)
    private let queue: DispatchQueue?

    private static var roundLimit: Int { 16 }

    /// A turn on the thread that finds it free or, when a queue is given, always on that queue.
    package init(queue: DispatchQueue?) {
        self.queue = queue
    }

    deinit {
        _ = Self.open(gate.load(ordering: .acquiring))
    }

    /// Has `owner`, whose field this is, receive `message`: at once when the turn is free, or else as soon as
    /// those before it are done.
    ///
    /// - Parameter executor: Where the caller is, for `finishTurn(on:)`; the turn's own queue takes
    ///   precedence.
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

    /// True when all turns happen on a queue of the caller's.
    var isOnQueue: Bool { queue != nil }

    /// Enters the turn if it is free now: `leaveOrDrain` follows. False, and nothing has happened, when
    /// someone else is inside, or when turns belong on a queue.
    @inline(__always)
    func enterIfFree() -> Bool {
        guard queue == nil, move(from: Gate.free, to: Gate.taken) else { return false }
        holder.store(pthread_self(), ordering: .relaxed)
        return true
    }

    /// After `enterIfFree()`: leaves the turn of `owner`, whose field this is, and serves what was posted
    /// meanwhile.
    ///
    /// - Parameter mustAsk: The loop is to give the owner another turn.
    func leaveOrDrain<Owner: TurnOwner>(_ owner: Owner, asking mustAsk: Bool = false, on executor: TurnExecutor = .caller)
    where Owner.Message == Message {
        if !leave() { drain(owner, asking: mustAsk, on: executor) } else if mustAsk { owner.askForTurn() }
    }

    /// True for user code that `owner` calls inside the turn, as long as no message waits: it may act at
    /// once.
    package func isOpen(within owner: some TurnOwner) -> Bool {
        isCallingUser(of: owner) && gate.load(ordering: .acquiring) == Gate.taken
    }

    /// True for user code that `owner` calls inside the turn.
    package func isCallingUser(of owner: some TurnOwner) -> Bool {
        holder.load(ordering: .relaxed) == pthread_self() && owner.isCallingUser
    }

    /// The same, and at once for user code that `owner` calls inside the turn, whatever waits: that is
    /// received before.
    func postBehindAll<Owner: TurnOwner>(_ message: Message, to owner: Owner) where Owner.Message == Message {
        guard isCallingUser(of: owner) else { return post(message, to: owner) }
        for message in Self.open(gate.exchange(Gate.taken, ordering: .acquiringAndReleasing)) { owner.receive(message) }
        owner.receive(message)
    }

    private func move(from old: UInt, to new: UInt) -> Bool {
        gate.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }

    /// Leaves a message; true when no thread was inside, and the caller is now.
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

    /// The messages behind a word of the gate, oldest first; their letters are released.
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

    /// Called by the owner's `drainTurn(on:)`, and inside: takes the messages that wait.
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
        // This wakes the loop in any case.
        while case let mail = gate.load(ordering: .acquiring), !move(from: mail, to: mail | Gate.isFree) {}
        owner.leaveRestToLoop()
    }

    /// False when there is mail.
    private func leave() -> Bool {
        holder.store(0, ordering: .relaxed)
        if move(from: Gate.taken, to: Gate.free) { return true }
        holder.store(pthread_self(), ordering: .relaxed)
        return false
    }
}

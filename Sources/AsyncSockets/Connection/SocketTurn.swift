// Rules of the turn:
//  1. At any time at most one thread is inside; state that is confined to the turn needs no other protection.
//  2. No one waits to get in. Who finds the turn free takes it; anyone else leaves a message and goes on.
//  3. Who is inside takes every message left meanwhile, in the order they came, before leaving; after
//     `roundLimit` rounds it leaves the rest to the owner's loop, so that no one works for others for ever.
//  4. With a queue of the caller's, turns run there by `async`, at most one block outstanding; the queue is
//     never waited for.
//  5. A message posted from inside the turn is handled after the one that is being handled, never within it.
//     Where the owner calls user code, none is being handled: what that code posts is handled at once, unless
//     other messages came before it.

package import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// Whose state a turn protects.
package protocol TurnOwner: AnyObject, Sendable {
    /// What can be asked of it.
    associatedtype Message: Sendable

    /// Inside the turn: does what the message says.
    func receive(_ message: Message)
    /// Inside the turn, when no message is left for the moment.
    func finishTurn(on executor: TurnExecutor)
    /// Inside the turn: true while user code is called that may post messages.
    var isCallingUser: Bool { get }
    /// Outside: messages are left. Have the loop post another one soon.
    func leaveRestToLoop()
}

/// Who is inside a turn.
package enum TurnExecutor {
    /// The owner's event loop.
    case loop
    /// The queue that the turn was given.
    case queue
    /// Whoever has posted a message.
    case caller
}

/// What is known at the entrance of a turn.
private enum Gate {
    static let free: UInt8 = 0
    static let taken: UInt8 = 1
    /// Taken, and there are messages in the mailbox.
    static let takenWithMail: UInt8 = 2
    /// Free, and there are messages in the mailbox, left for the owner's loop.
    static let freeWithMail: UInt8 = 3
}

/// The serial `socketQueue` of CocoaAsyncSocket without its dead ends: it serialises, and it never blocks.
///
/// A `sync` on a queue for each socket deadlocks when two sockets relay to each other from two loops, and
/// traps when a queue is re-entered or shared as a target. Here no one waits.
package final class SocketTurn<Message: Sendable>: Sendable {
    // Atomics rather than one lock around it all: three locks less for each message that a delegate answers.
    private let gate = Atomic(Gate.free)
    /// The thread inside; zero: none. A thread finds its own number here only if it is inside.
    private let holder = Atomic<pthread_t>(0)
    /// The mail states of the gate change with this lock held.
    private let mailbox = Locked<[Message]>([])
    private let queue: DispatchQueue?

    private static var roundLimit: Int { 16 }

    /// A turn on the thread of whoever finds it free or, when a queue is given, always on that queue.
    package init(queue: DispatchQueue?) {
        self.queue = queue
    }

    /// Has `owner` receive `message`: at once when the turn is free, or else as soon as those before it are
    /// done.
    ///
    /// - Parameter executor: Where the caller is, for `finishTurn(on:)`; a queue of the turn's own goes before
    ///   it.
    package func post<Owner: TurnOwner>(_ message: Message, to owner: Owner, from executor: TurnExecutor = .caller)
    where Owner.Message == Message {
        if queue == nil, move(from: Gate.free, to: Gate.taken) {
            holder.store(pthread_self(), ordering: .relaxed)
            owner.receive(message)
            owner.finishTurn(on: executor)
            if !leave() { drain(owner, on: executor) }
        } else if isOpen(within: owner) {
            owner.receive(message)
        } else if mustDrain(afterLeaving: message) {
            guard let queue else { return drain(owner, on: executor) }
            queue.async { self.drain(owner, on: .queue) }
        }
    }

    /// True for user code that `owner` calls inside the turn, as long as no message waits: it may act at
    /// once.
    package func isOpen(within owner: some TurnOwner) -> Bool {
        isCallingUser(of: owner) && isWithoutMail
    }

    /// True for user code that `owner` calls inside the turn.
    package func isCallingUser(of owner: some TurnOwner) -> Bool {
        holder.load(ordering: .relaxed) == pthread_self() && owner.isCallingUser
    }

    private func move(from old: UInt8, to new: UInt8) -> Bool {
        gate.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }

    private var isWithoutMail: Bool { gate.load(ordering: .acquiring) == Gate.taken }

    /// Puts a message into the mailbox; true when the turn was free and is the caller's now.
    private func mustDrain(afterLeaving message: Message) -> Bool {
        mailbox.withLock { mailbox in
            mailbox.append(message)
            // Whoever is inside may leave meanwhile, as long as it has not been told of mail.
            while true {
                if move(from: Gate.taken, to: Gate.takenWithMail) { return false }
                if move(from: Gate.free, to: Gate.takenWithMail) || move(from: Gate.freeWithMail, to: Gate.takenWithMail) {
                    return true
                }
                if gate.load(ordering: .acquiring) == Gate.takenWithMail { return false }
            }
        }
    }

    private func drain<Owner: TurnOwner>(_ owner: Owner, on executor: TurnExecutor) where Owner.Message == Message {
        holder.store(pthread_self(), ordering: .relaxed)
        for _ in 0..<Self.roundLimit {
            for message in takeMessages() { owner.receive(message) }
            owner.finishTurn(on: executor)
            if leave() { return }
        }
        holder.store(0, ordering: .relaxed)
        if let queue { return queue.async { self.drain(owner, on: executor) } }
        gate.store(Gate.freeWithMail, ordering: .releasing)
        owner.leaveRestToLoop()
    }

    private func takeMessages() -> [Message] {
        mailbox.withLock { mailbox in
            gate.store(Gate.taken, ordering: .releasing)
            defer { mailbox = [] }
            return mailbox
        }
    }

    /// False when there is mail.
    private func leave() -> Bool {
        holder.store(0, ordering: .relaxed)
        if move(from: Gate.taken, to: Gate.free) { return true }
        holder.store(pthread_self(), ordering: .relaxed)
        return false
    }
}

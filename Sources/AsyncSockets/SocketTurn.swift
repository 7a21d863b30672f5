// Rules of the turn:
//  1. At any time at most one thread is inside; state that is confined to the turn needs no other protection.
//  2. Nobody waits to get in. Who finds the turn free takes it; anyone else leaves a message and goes on.
//  3. Who is inside takes every message left meanwhile, in the order they came, before leaving; after `roundLimit` rounds it leaves the rest to the owner's
//     loop, so that nobody works for others for ever.
//  4. With a queue of the caller's, turns run there by `async`, at most one block outstanding; the queue is never waited for.
//  5. A message posted from inside the turn is handled after the one that is being handled, never within it.

package import Dispatch
internal import SocketBuffers

/// Whose state a turn protects.
package protocol TurnOwner: AnyObject, Sendable {
    /// What can be asked of it.
    associatedtype Message: Sendable

    /// Inside the turn: does what the message says.
    func receive(_ message: Message)
    /// Inside the turn, when no message is left for the moment.
    func finishTurn()
    /// Outside, on the thread that has just left the turn.
    func didLeaveTurn()
    /// Outside: messages are left. Have the loop post another one soon.
    func leaveRestToLoop()
}

/// The serial `socketQueue` of CocoaAsyncSocket without its dead ends: it serialises, and it never blocks.
///
/// A `sync` on a queue for each socket deadlocks when two sockets relay to each other from two loops, and traps when a queue is re-entered
/// or shared as a target. Here nobody waits.
package final class SocketTurn<Message: Sendable>: Sendable {
    private struct State {
        var isTaken = false
        var mailbox: [Message] = []
    }

    private let state = Locked(State())
    private let queue: DispatchQueue?

    private static var roundLimit: Int { 16 }

    /// A turn on the thread of whoever finds it free or, when a queue is given, always on that queue.
    package init(queue: DispatchQueue?) {
        self.queue = queue
    }

    /// Has `owner` receive `message`: at once when the turn is free, or else as soon as those before it are done.
    package func post<Owner: TurnOwner>(_ message: Message, to owner: Owner) where Owner.Message == Message {
        let entry = state.withLock { state -> Entry in
            let isFirst = state.mailbox.isEmpty && !state.isTaken && queue == nil
            if !isFirst { state.mailbox.append(message) }
            defer { state.isTaken = true }
            return state.isTaken ? .elsewhere : isFirst ? .withMessage : .withMailbox
        }
        if case .elsewhere = entry { return }
        if let queue { return queue.async { self.drain(owner) } }
        guard case .withMessage = entry else { return drain(owner) }
        owner.receive(message)
        owner.finishTurn()
        leave() ? owner.didLeaveTurn() : drain(owner)
    }

    /// How a message gets into the turn.
    private enum Entry {
        /// Somebody is inside and will take it.
        case elsewhere
        /// In the hands of the poster.
        case withMessage
        /// By the mailbox, behind those that were left there.
        case withMailbox
    }

    private func drain<Owner: TurnOwner>(_ owner: Owner) where Owner.Message == Message {
        for _ in 0..<Self.roundLimit {
            for message in takeMessages() { owner.receive(message) }
            owner.finishTurn()
            if leave() { return owner.didLeaveTurn() }
        }
        leaveRest(owner)
    }

    private func leaveRest<Owner: TurnOwner>(_ owner: Owner) where Owner.Message == Message {
        if let queue {
            owner.didLeaveTurn()
            return queue.async { self.drain(owner) }
        }
        state.withLock { $0.isTaken = false }
        owner.didLeaveTurn()
        owner.leaveRestToLoop()
    }

    private func takeMessages() -> [Message] {
        state.withLock { state in
            guard !state.mailbox.isEmpty else { return [] }
            defer { state.mailbox = [] }
            return state.mailbox
        }
    }

    private func leave() -> Bool {
        state.withLock { state in
            guard state.mailbox.isEmpty else { return false }
            state.isTaken = false
            return true
        }
    }
}

// Rules of the turn:
//  1. At any time at most one thread is inside; state that is confined to the turn needs no other protection.
//  2. Nobody waits to get in. Who finds the turn free takes it; anyone else leaves a message and goes on.
//  3. Who is inside takes every message left meanwhile, in the order they came, before leaving.
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

    /// A turn on the thread of whoever finds it free or, when a queue is given, always on that queue.
    package init(queue: DispatchQueue?) {
        self.queue = queue
    }

    /// Has `owner` receive `message`: at once when the turn is free, or else as soon as those before it are done.
    package func post<Owner: TurnOwner>(_ message: Message, to owner: Owner) where Owner.Message == Message {
        let mustRun = state.withLock { state in
            if queue != nil || state.isTaken { state.mailbox.append(message) }
            defer { state.isTaken = true }
            return !state.isTaken
        }
        guard mustRun else { return }
        if let queue {
            queue.async { self.drain(owner) }
        } else {
            owner.receive(message)
            drain(owner)
        }
    }

    private func drain<Owner: TurnOwner>(_ owner: Owner) where Owner.Message == Message {
        repeat {
            for message in takeMessages() { owner.receive(message) }
            owner.finishTurn()
        } while !leave()
        owner.didLeaveTurn()
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

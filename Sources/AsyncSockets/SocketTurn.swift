// Rules of the turn:
//  1. At any time at most one thread is inside; state that is confined to the turn needs no other protection.
//  2. Nobody waits to get in. Who finds the turn free takes it; anyone else leaves a message and goes on.
//  3. Who is inside takes every message left meanwhile, in the order they came, before leaving; after `roundLimit` rounds it leaves the rest to the owner's
//     loop, so that nobody works for others for ever.
//  4. With a queue of the caller's, turns run there by `async`, at most one block outstanding; the queue is never waited for.
//  5. A message posted from inside the turn is handled after the one that is being handled, never within it. Where the owner calls user code, none is
//     being handled: what that code posts is handled at once, unless other messages came before it.

package import Dispatch
internal import Glibc
internal import SocketBuffers

/// Whose state a turn protects.
package protocol TurnOwner: AnyObject, Sendable {
    /// What can be asked of it.
    associatedtype Message: Sendable

    /// Inside the turn: does what the message says.
    func receive(_ message: Message)
    /// Inside the turn, when no message is left for the moment.
    func finishTurn(on place: TurnPlace)
    /// Inside the turn: true while user code is called that may post messages.
    var isCallingUser: Bool { get }
    /// Outside: messages are left. Have the loop post another one soon.
    func leaveRestToLoop()
}

/// Who is inside a turn.
package enum TurnPlace {
    /// The owner's event loop.
    case loop
    /// The queue that the turn was given.
    case queue
    /// Whoever has posted a message.
    case caller
}

/// The serial `socketQueue` of CocoaAsyncSocket without its dead ends: it serialises, and it never blocks.
///
/// A `sync` on a queue for each socket deadlocks when two sockets relay to each other from two loops, and traps when a queue is re-entered
/// or shared as a target. Here nobody waits.
package final class SocketTurn<Message: Sendable>: Sendable {
    private struct State {
        var isTaken = false
        /// The thread inside.
        var holder: pthread_t?
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
    ///
    /// - Parameter place: Where the caller is, for `finishTurn(on:)`; a queue of the turn's own goes before it.
    package func post<Owner: TurnOwner>(_ message: Message, to owner: Owner, from place: TurnPlace = .caller)
    where Owner.Message == Message {
        let caller = pthread_self()
        let entry = state.withLock { state -> Entry in
            if state.isTaken {
                // Only the thread inside may look at the owner, and here it is that.
                if state.mailbox.isEmpty, state.holder == caller, owner.isCallingUser { return .within }
                state.mailbox.append(message)
                return .elsewhere
            }
            state.isTaken = true
            if queue == nil, state.mailbox.isEmpty {
                state.holder = caller
                return .withMessage
            }
            state.mailbox.append(message)
            return .withMailbox
        }
        switch entry {
        case .elsewhere: break
        case .within: owner.receive(message)
        case .withMailbox:
            guard let queue else { return drain(owner, on: place) }
            queue.async { self.drain(owner, on: .queue) }
        case .withMessage:
            owner.receive(message)
            owner.finishTurn(on: place)
            if !leave() { drain(owner, on: place) }
        }
    }

    /// How a message gets into the turn.
    private enum Entry {
        /// Somebody is inside and will take it.
        case elsewhere
        /// The poster is inside, in user code.
        case within
        /// In the hands of the poster.
        case withMessage
        /// By the mailbox, behind those that were left there.
        case withMailbox
    }

    private func drain<Owner: TurnOwner>(_ owner: Owner, on place: TurnPlace) where Owner.Message == Message {
        for _ in 0..<Self.roundLimit {
            for message in takeMessages() { owner.receive(message) }
            owner.finishTurn(on: place)
            if leave() { return }
        }
        if let queue { return queue.async { self.drain(owner, on: place) } }
        state.withLock { state in
            state.isTaken = false
            state.holder = nil
        }
        owner.leaveRestToLoop()
    }

    private func takeMessages() -> [Message] {
        let caller = pthread_self()
        return state.withLock { state in
            state.holder = caller
            guard !state.mailbox.isEmpty else { return [] }
            defer { state.mailbox = [] }
            return state.mailbox
        }
    }

    private func leave() -> Bool {
        state.withLock { state in
            guard state.mailbox.isEmpty else { return false }
            state.isTaken = false
            state.holder = nil
            return true
        }
    }
}

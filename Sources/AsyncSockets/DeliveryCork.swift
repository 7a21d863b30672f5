internal import Synchronization

/// Holds back the pump while the delegate is called on the event loop, so that what it queues in one go is served in one go: writes leave together.
///
/// Not on a delegate queue, where a callback may take its time.
final class DeliveryCork: Sendable {
    private enum State {
        static let open: UInt8 = 0
        static let closed: UInt8 = 1
        /// Closed, and something waits behind it.
        static let pressed: UInt8 = 2
    }

    private let state = Atomic(State.open)

    /// On the loop, before the delegate is called.
    func close() {
        state.store(State.closed, ordering: .releasing)
    }

    /// On the loop, after the delegate was called; true when something waits.
    func open() -> Bool {
        state.exchange(State.open, ordering: .acquiringAndReleasing) == State.pressed
    }

    /// Inside the turn: true when what was just queued is to wait for `open()`, which will say so.
    func holdsBack() -> Bool {
        let before = state.compareExchange(expected: State.closed, desired: State.pressed, ordering: .acquiringAndReleasing)
            .original
        return before != State.open
    }

    /// Inside the turn: true when something waits.
    var isPressed: Bool {
        state.load(ordering: .acquiring) == State.pressed
    }
}

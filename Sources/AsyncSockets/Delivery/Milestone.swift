internal import Synchronization

/// An event that happens once, with at most one waiter.
struct Milestone: ~Copyable, Sendable {
    private final class Continuation: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    private static let unreached: UInt = 0
    private static let reached: UInt = 1

    /// Either of the values above, or the address of a `Continuation` that is retained here.
    private let state = Atomic(Milestone.unreached)

    deinit {
        Self.take(state.load(ordering: .acquiring))?.release()
    }

    var isReached: Bool { state.load(ordering: .acquiring) == Self.reached }

    /// Calls `sequel` when the milestone is reached, on the thread that reaches it, or immediately if it was
    /// already reached. Call this once.
    func whenReached(_ sequel: @escaping @Sendable () -> Void) {
        let waiting = Unmanaged.passRetained(Continuation(sequel))
        let change = state.compareExchange(
            expected: Self.unreached, desired: UInt(bitPattern: waiting.toOpaque()), ordering: .acquiringAndReleasing)
        if change.exchanged { return }
        waiting.release()
        sequel()
    }

    /// Marks the milestone as reached. Further calls have no effect.
    func reach() {
        Self.take(state.exchange(Self.reached, ordering: .acquiringAndReleasing))?.takeRetainedValue().body()
    }

    private static func take(_ state: UInt) -> Unmanaged<Continuation>? {
        guard state > reached, let address = UnsafeRawPointer(bitPattern: state) else { return nil }
        return .fromOpaque(address)
    }
}

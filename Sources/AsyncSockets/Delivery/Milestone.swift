internal import Synchronization

/// Something that happens once, and one waiter for it.
struct Milestone: ~Copyable, Sendable {
    /// The work to do when it is reached.
    private final class Sequel: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    private static let unreached: UInt = 0
    private static let reached: UInt = 1

    /// One of the two numbers above, or the address of a `Sequel` whose reference is held here.
    private let state = Atomic(Milestone.unreached)

    deinit {
        Self.take(state.load(ordering: .acquiring))?.release()
    }

    var isReached: Bool { state.load(ordering: .acquiring) == Self.reached }

    /// Calls `sequel` when it is reached, on the thread that reaches it, or at once when it is reached
    /// already. Call this once.
    func whenReached(_ sequel: @escaping @Sendable () -> Void) {
        let waiting = Unmanaged.passRetained(Sequel(sequel))
        let change = state.compareExchange(
            expected: Self.unreached, desired: UInt(bitPattern: waiting.toOpaque()), ordering: .acquiringAndReleasing)
        if change.exchanged { return }
        waiting.release()
        sequel()
    }

    /// It has happened. Further calls change nothing.
    func reach() {
        Self.take(state.exchange(Self.reached, ordering: .acquiringAndReleasing))?.takeRetainedValue().body()
    }

    private static func take(_ state: UInt) -> Unmanaged<Sequel>? {
        guard state > reached, let address = UnsafeRawPointer(bitPattern: state) else { return nil }
        return .fromOpaque(address)
    }
}

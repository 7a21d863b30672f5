import SocketBuffers

/// A clock that is controlled by the test.
final class TestClock: Sendable {
    private let time = Locked((nanoseconds: 0, step: 0))

    /// Nanoseconds.
    var now: Int {
        time.withLock {
            $0.nanoseconds += $0.step
            return $0.nanoseconds
        }
    }

    func advance(milliseconds: Int) {
        time.withLock { $0.nanoseconds += milliseconds * 1_000_000 }
    }

    /// Makes the clock advance by this much each time it is read.
    func step(milliseconds: Int) {
        time.withLock { $0.step = milliseconds * 1_000_000 }
    }
}

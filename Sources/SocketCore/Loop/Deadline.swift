internal import CLinux
internal import Glibc

/// A point in time on the monotonic clock.
package struct Deadline: Comparable, Hashable, Sendable {
    /// The time on `CLOCK_MONOTONIC` in nanoseconds.
    package let nanoseconds: UInt64

    package static var now: Deadline {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Deadline(nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    package static var distantPast: Deadline { Deadline(nanoseconds: 0) }

    package static var never: Deadline { Deadline(nanoseconds: .max) }

    /// Avoids a comparison with `never` in another module, which would look up `==` at run time.
    package var isNever: Bool { nanoseconds == .max }

    /// Avoids a comparison operator in another module, which would be looked up at run time.
    package func isAtMost(_ other: Deadline) -> Bool { nanoseconds <= other.nanoseconds }

    package func earlier(_ other: Deadline) -> Deadline { nanoseconds <= other.nanoseconds ? self : other }

    /// Creates a deadline `seconds` after `start`. Returns `nil`, which means never, if `seconds` is
    /// negative, infinite or NaN.
    package init?(after seconds: Double, from start: Deadline = .now) {
        guard seconds >= 0, seconds.isFinite else { return nil }
        // Limited to a century, so that the sum does not overflow.
        let nanoseconds = UInt64(min(seconds, 3_155_760_000) * 1_000_000_000)
        self.nanoseconds = start.nanoseconds + nanoseconds
    }

    private init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    package func seconds(since earlier: Deadline) -> Double {
        nanoseconds >= earlier.nanoseconds
            ? Double(nanoseconds - earlier.nanoseconds) / 1_000_000_000
            : -Double(earlier.nanoseconds - nanoseconds) / 1_000_000_000
    }

    var timerSpecification: itimerspec {
        // Zero disarms a timer, so the earliest deadline is one nanosecond after boot.
        let point = max(nanoseconds, 1)
        return itimerspec(
            it_interval: timespec(),
            it_value: timespec(tv_sec: Int(point / 1_000_000_000), tv_nsec: Int(point % 1_000_000_000))
        )
    }

    /// Returns the earlier of two deadlines. `nil` means never.
    package static func earlier(_ one: Deadline?, _ other: Deadline?) -> Deadline? {
        guard let one, let other else { return one ?? other }
        return min(one, other)
    }

    package static func < (left: Deadline, right: Deadline) -> Bool {
        left.nanoseconds < right.nanoseconds
    }
}

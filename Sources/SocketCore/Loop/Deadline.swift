internal import CLinux
internal import Glibc

/// A point on the monotonic clock at which something has taken too long.
package struct Deadline: Comparable, Hashable, Sendable {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    let nanoseconds: UInt64

    package static var now: Deadline {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Deadline(nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    /// Earlier than every other.
    package static var distantPast: Deadline { Deadline(nanoseconds: 0) }

    /// After all others.
    package static var never: Deadline { Deadline(nanoseconds: .max) }

    /// A comparison with `never` in another module would look `==` up at run time.
    package var isNever: Bool { nanoseconds == .max }

    /// A comparison by an operator in another module would look it up at run time.
    package func isAtMost(_ other: Deadline) -> Bool { nanoseconds <= other.nanoseconds }

    /// The earlier one.
    package func earlier(_ other: Deadline) -> Deadline { nanoseconds <= other.nanoseconds ? self : other }

    /// `seconds` from `start`; nil, which means never, when `seconds` is negative, infinite or not a number.
    package init?(after seconds: Double, from start: Deadline = .now) {
        guard seconds >= 0, seconds.isFinite else { return nil }
        // A century is as good as never, and keeps the sum in range.
        let nanoseconds = UInt64(min(seconds, 3_155_760_000) * 1_000_000_000)
        self.nanoseconds = start.nanoseconds + nanoseconds
    }

    private init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// The time from `earlier` to this point, in seconds.
    package func seconds(since earlier: Deadline) -> Double {
        nanoseconds >= earlier.nanoseconds
            ? Double(nanoseconds - earlier.nanoseconds) / 1_000_000_000
            : -Double(earlier.nanoseconds - nanoseconds) / 1_000_000_000
    }

    var timerSpecification: itimerspec {
        // Zero disarms a timer, so the earliest point is one nanosecond after boot.
        let point = max(nanoseconds, 1)
        return itimerspec(
            it_interval: timespec(),
            it_value: timespec(tv_sec: Int(point / 1_000_000_000), tv_nsec: Int(point % 1_000_000_000))
        )
    }

    /// The earlier of two deadlines, where nil is never.
    package static func earlier(_ one: Deadline?, _ other: Deadline?) -> Deadline? {
        guard let one, let other else { return one ?? other }
        return min(one, other)
    }

    package static func < (left: Deadline, right: Deadline) -> Bool {
        left.nanoseconds < right.nanoseconds
    }
}

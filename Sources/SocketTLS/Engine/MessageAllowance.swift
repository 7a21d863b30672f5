// Rules for the allowance:
//  1. Every message from the peer that is not data is counted: handshake messages (KeyUpdate, tickets,
//     renegotiation requests) and warnings, during and after the handshake. Data between these messages makes
//     no difference: a peer that sends one byte of data after each message still floods this side.
//  2. A peer may send `burst` messages in quick succession, and `perSecond` over the lifetime of the
//     connection. HAProxy allows the same number of KeyUpdates. Each message costs about 25 microseconds, so
//     a peer at the limit uses 0.25% of a CPU. If a peer exceeds this rate, the connection fails once the
//     peer is `burst` messages ahead of it.
//  3. An honest peer needs far fewer: even if it changes its key with every record of 16 KiB, it reaches the
//     limit only at 1.6 MB per second.
//  4. Once spent, the allowance stays spent.
//
// Empty records need no limit: OpenSSL closes a connection after 32 in a row, and a single empty record costs
// no more than any other record.

internal import Glibc

/// A token bucket that limits the peer's messages other than data. The bucket is stored as the time at which
/// it is full again.
package struct MessageAllowance {
    static let burst = 100
    static let perSecond = 100

    private(set) var isSpent = false
    private var fullAt = 0

    private static let nanosecondsPerMessage = 1_000_000_000 / perSecond

    /// Counts one message that arrived at `now`, in nanoseconds of a monotonic clock.
    mutating func spend(at now: Int) {
        fullAt = max(fullAt, now) + Self.nanosecondsPerMessage
        if fullAt - now > Self.burst * Self.nanosecondsPerMessage { isSpent = true }
    }

    @Sendable package static func monotonicNanoseconds() -> Int {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

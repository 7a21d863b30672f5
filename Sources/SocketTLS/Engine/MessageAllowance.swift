// Rules of the allowance:
//  1. What counts is every message of the peer that is no data: handshake messages (KeyUpdate, tickets,
//     requests to renegotiate) and warnings, in and after the handshake. Data between them changes nothing: a
//     flood with a byte after each message is one too.
//  2. `burst` of them may come at once, and `perSecond` for as long as the connection lives. HAProxy takes as
//     many KeyUpdates. Each costs some 25 microseconds, so a peer at the limit has 0.25 % of a processor, and
//     one beyond it is ended after `burst` messages.
//  3. An honest peer needs far less: one that changes its key with every record of 16 KiB comes to the limit
//     at 1.6 MB a second.
//  4. Once it is spent it stays so.
//
// Records without content need no count of ours: OpenSSL ends a connection after 32 in a row, and one between
// others costs what a record costs.

internal import Glibc

/// How many messages that are no data a peer may still send: a token bucket, kept as the time at which it is
/// full again.
package struct MessageAllowance {
    static let burst = 100
    static let perSecond = 100

    private(set) var isSpent = false
    private var fullAt = 0

    private static let nanosecondsPerMessage = 1_000_000_000 / perSecond

    /// One message came at `now`, in nanoseconds of a clock that never goes back.
    mutating func spend(at now: Int) {
        fullAt = max(fullAt, now) + Self.nanosecondsPerMessage
        if fullAt - now > Self.burst * Self.nanosecondsPerMessage { isSpent = true }
    }

    /// The clock of a real connection.
    @Sendable package static func monotonicNanoseconds() -> Int {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

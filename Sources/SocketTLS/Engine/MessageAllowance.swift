// Rules of the allowance:
//  1. Every message of the peer that is not data counts: handshake messages (KeyUpdate, tickets, requests to
//     renegotiate) and warnings, during and after the handshake. Data between them changes nothing: messages
//     with a byte after each one are a flood too.
//  2. `burst` of them may come at once, and `perSecond` as long as the connection lives. HAProxy allows as
//     many KeyUpdates. Each costs some 25 microseconds, so a peer at the limit takes 0.25 % of a processor,
//     and the connection of a peer beyond it ends after `burst` messages.
//  3. An honest peer needs far fewer: one that changes its key with every record of 16 KiB reaches the limit
//     at 1.6 MB a second.
//  4. Once spent, the allowance stays spent.
//
// Empty records need no count: OpenSSL ends a connection after 32 in a row, and one between others costs what
// any record costs.

internal import Glibc

/// How many messages that are not data a peer may still send: a token bucket, stored as the time at which it
/// is full again.
package struct MessageAllowance {
    static let burst = 100
    static let perSecond = 100

    private(set) var isSpent = false
    private var fullAt = 0

    private static let nanosecondsPerMessage = 1_000_000_000 / perSecond

    /// Counts one message that came at `now`, in nanoseconds of a clock that never goes back.
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

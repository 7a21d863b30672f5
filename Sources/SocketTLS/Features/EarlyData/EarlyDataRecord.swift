// Rules against replays (RFC 8446, 8):
//  1. OpenSSL accepts early data only if the ticket age stated in the ClientHello is correct, by the system
//     clock, to within a window of 11 seconds (8.3; `TICKET_AGE_ALLOWANCE`). It also enforces the other
//     conditions of 4.2.10: the first ticket, the same application protocol, no HelloRetryRequest.
//  2. The system clock may be changed. Each ticket therefore also records when it was issued by our own
//     clock, and the two ages must agree to within 2 seconds. As a result, a ClientHello and its replay
//     are less than 15 seconds apart.
//  3. A ticket can be used for early data once within 20 seconds (8.1). It is identified by the secret
//     that it resumes, which is different for each ticket.
//  4. When the record is full, early data is rejected. Entries are never removed early to make room.
//  5. The record belongs to the ticket keys. Only this process has these keys, and new keys are created when
//     it restarts. Early data is therefore not available with shared keys.
//
// OpenSSL's own protection requires stateful tickets: for each ticket, it caches a whole session for an
// hour, whether or not the ticket is used. This record takes 25 bytes per use, for 20 to 40 seconds.

/// The tickets that were recently used for early data.
package struct EarlyDataRecord {
    /// The first 128 bits of a digest.
    package struct Ticket: Hashable {
        let high: UInt64
        let low: UInt64

        package init(high: UInt64, low: UInt64) {
            (self.high, self.low) = (high, low)
        }
    }

    /// The minimum time for which a ticket is remembered, in seconds.
    package static let period = 20
    /// The maximum number of tickets in one period: three quarters of a power of two, which a `Set`
    /// stores in 1.2 MB.
    package static let standardLimit = 49_152

    private let limit: Int
    private var current: Set<Ticket> = []
    private var previous: Set<Ticket> = []
    private var start = 0

    package init(limit: Int = standardLimit) {
        self.limit = limit
    }

    /// Records a ticket, and returns whether it may be used for early data: only once, and not if the
    /// record is full.
    package mutating func admit(_ ticket: Ticket, at now: Int) -> Bool {
        if now - start >= Self.period {
            previous = now - start >= 2 * Self.period ? [] : current
            current = []
            start = now
        }
        guard current.count < limit, !previous.contains(ticket) else { return false }
        return current.insert(ticket).inserted
    }
}

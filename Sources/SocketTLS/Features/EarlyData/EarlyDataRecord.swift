// Rules against replays (RFC 8446, 8):
//  1. OpenSSL takes early data only while the age of the ticket, as the ClientHello states it, is right: for
//     11 seconds of the system's clock (8.3; `TICKET_AGE_ALLOWANCE`). It also sees to the rest of 4.2.10: the
//     first ticket, the same application protocol, no HelloRetryRequest.
//  2. The system's clock may be set. So a ticket tells its age by our own clock too, and the two must agree
//     to 2 seconds: a ClientHello and its replay are less than 15 seconds apart.
//  3. Within 20 seconds a ticket brings early data once (8.1). It is known by the secret that it resumes,
//     which is another one for each ticket.
//  4. A full record takes no early data. Nothing is forgotten early to make room.
//  5. The record belongs to the keys of the tickets. Only this process has them, and after a restart there
//     are others: so shared keys cannot have early data.
//
// OpenSSL's own protection wants stateful tickets: a whole session in its cache for each ticket, for an hour,
// whether it is used or not. This one takes 25 bytes for each use, for 20 to 40 seconds.

/// Which tickets have brought early data lately.
package struct EarlyDataRecord {
    /// The first 128 bits of a digest.
    package struct Ticket: Hashable {
        let high: UInt64
        let low: UInt64

        package init(high: UInt64, low: UInt64) {
            (self.high, self.low) = (high, low)
        }
    }

    /// The least number of seconds for which a ticket is remembered.
    package static let period = 20
    /// The most tickets within one period: three quarters of a power of two, which a `Set` holds in 1.2 MB.
    package static let standardLimit = 49_152

    private let limit: Int
    // The tickets of the present period, and of the one before.
    private var current: Set<Ticket> = []
    private var previous: Set<Ticket> = []
    private var start = 0

    package init(limit: Int = standardLimit) {
        self.limit = limit
    }

    /// Whether a ticket may bring early data now: once, and not when the record is full.
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

internal import COpenSSL

/// The keys of one context's session tickets; the newest encrypts. A value: its callers pass the time, in
/// seconds of any one clock.
///
/// The ring has no timer. It makes a key when a ticket needs one, and drops expired keys when it is next
/// used: a server without visitors keeps its last key until then.
package struct TicketKeyRing {
    /// The seconds for which a key encrypts. It decrypts for as many again, so that it outlives each of its
    /// tickets.
    package static let period = 3600

    private var current: TLSTicketKey?
    private var previous: TLSTicketKey?

    package init() {}

    /// The key that encrypts now: a new one if the period of the last one is over. Nil on failure, with the
    /// reason in OpenSSL's queue.
    package mutating func keyForSealing(at now: Int) -> TLSTicketKey? {
        dropExpiredKeys(at: now)
        if let current, now - current.birth < Self.period { return current }
        guard let next = TLSTicketKey(at: now) else { return nil }
        (previous, current) = (current, next)
        return next
    }

    /// The key of that name, as long as it decrypts, and whether it still encrypts.
    package mutating func key(named name: UnsafeRawBufferPointer, at now: Int) -> (key: TLSTicketKey, encrypts: Bool)? {
        dropExpiredKeys(at: now)
        let found = [current, previous].lazy.compactMap { $0 }.first { $0.name.elementsEqual(name) }
        return found.map { ($0, $0 === current && now - $0.birth < Self.period) }
    }

    /// The bytes of a key are wiped with the last reference.
    private mutating func dropExpiredKeys(at now: Int) {
        if let key = previous, now - key.birth >= 2 * Self.period { previous = nil }
        if let key = current, now - key.birth >= 2 * Self.period { current = nil }
    }
}

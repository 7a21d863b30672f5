internal import COpenSSL

/// The keys of one context's session tickets; the newest key encrypts. Callers pass the time in seconds,
/// always from the same clock.
///
/// The ring has no timer. It creates a key when a ticket needs one, and removes expired keys when it is
/// next used. A server without clients therefore keeps its last key until then.
package struct TicketKeyRing {
    /// How long a key encrypts, in seconds. It decrypts for the same time again, so that it outlives all
    /// of its tickets.
    package static let period = 3600

    private var current: TLSTicketKey?
    private var previous: TLSTicketKey?

    package init() {}

    /// Returns the key that encrypts now, and creates a new key if the previous one has expired. On failure,
    /// returns `nil`, and the reason is in OpenSSL's error queue.
    package mutating func keyForSealing(at now: Int) -> TLSTicketKey? {
        dropExpiredKeys(at: now)
        if let current, now - current.birth < Self.period { return current }
        guard let next = TLSTicketKey(at: now) else { return nil }
        (previous, current) = (current, next)
        return next
    }

    /// Returns the key with that name if it still decrypts, and whether it still encrypts.
    package mutating func key(named name: UnsafeRawBufferPointer, at now: Int) -> (key: TLSTicketKey, encrypts: Bool)? {
        dropExpiredKeys(at: now)
        let found = [current, previous].lazy.compactMap { $0 }.first { $0.name.elementsEqual(name) }
        return found.map { ($0, $0 === current && now - $0.birth < Self.period) }
    }

    /// The bytes of a key are wiped when its last reference is released.
    private mutating func dropExpiredKeys(at now: Int) {
        if let key = previous, now - key.birth >= 2 * Self.period { previous = nil }
        if let key = current, now - key.birth >= 2 * Self.period { current = nil }
    }
}

internal import COpenSSL

/// The keys of one context's session tickets; the newest encrypts. A value: its callers pass the time, in
/// seconds of any one clock.
///
/// There is no timer. The ring makes a key when a ticket needs one, and drops expired keys when it is next
/// used: a server without visitors keeps its last key until then.
package struct TicketKeyRing {
    /// The seconds for which a key encrypts. It decrypts for as many again, so that it outlives each of its
    /// tickets.
    package static let period = 3600

    private var current: TicketKey?
    private var previous: TicketKey?

    package init() {}

    /// The key that encrypts now: a new one if the period of the last one is over. Nil on failure, with the
    /// reason in OpenSSL's queue.
    package mutating func keyForSealing(at now: Int) -> TicketKey? {
        dropExpiredKeys(at: now)
        if let current, now - current.birth < Self.period { return current }
        guard let next = TicketKey(at: now) else { return nil }
        (previous, current) = (current, next)
        return next
    }

    /// The key of that name, as long as it decrypts.
    package mutating func key(named name: UnsafeRawBufferPointer, at now: Int) -> TicketKey? {
        dropExpiredKeys(at: now)
        return [current, previous].lazy.compactMap { $0 }.first { $0.name.elementsEqual(name) }
    }

    /// The bytes of a key are wiped with the last reference.
    private mutating func dropExpiredKeys(at now: Int) {
        if let key = previous, now - key.birth >= 2 * Self.period { previous = nil }
        if let key = current, now - key.birth >= 2 * Self.period { current = nil }
    }
}

/// The key that encrypts and authenticates tickets, and the name at the front of its tickets.
package final class TicketKey: @unchecked Sendable {
    // Unchecked: the bytes are written once, before anyone else sees them.
    package let name: [UInt8]
    let birth: Int
    private let secret: SecretBytes

    static let nameLength = 16

    /// Runs inside a callback of OpenSSL, so it does not use `OpenSSLCall`: that would take the reason for a
    /// failure away from the outer call.
    fileprivate init?(at birth: Int) {
        var name = [UInt8](repeating: 0, count: Self.nameLength)
        guard RAND_bytes(&name, Int32(name.count)) == 1, let secret = SecretBytes(randomCount: 64) else { return nil }
        self.name = name
        self.birth = birth
        self.secret = secret
    }

    // Both point into the key: use them inside `withExtendedLifetime`.

    /// For AES-256.
    var forCipher: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.bytes[..<32]) }
    /// For HMAC-SHA256.
    var forAuthentication: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.bytes[32...]) }
}

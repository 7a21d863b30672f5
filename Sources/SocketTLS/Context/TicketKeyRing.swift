internal import COpenSSL

/// The keys of one context's session tickets, of which the newest encrypts. A value: the time is told to it,
/// in seconds of any one clock.
///
/// There is no timer. A key is made when a ticket needs one, and what is over goes when the ring is next
/// asked: a server without visitors keeps its last key for as long.
package struct TicketKeyRing {
    /// The seconds for which a key encrypts. For as many again it decrypts, so that it outlives each ticket
    /// that it has made.
    package static let period = 3600

    private var current: TicketKey?
    private var previous: TicketKey?

    package init() {}

    /// The key that encrypts now: a new one, when the period of the last one is over. Nil leaves the reason
    /// in OpenSSL's queue.
    package mutating func keyForSealing(at now: Int) -> TicketKey? {
        dropWhatIsOver(at: now)
        if let current, now - current.birth < Self.period { return current }
        guard let next = TicketKey(at: now) else { return nil }
        (previous, current) = (current, next)
        return next
    }

    /// The key of that name, while it decrypts.
    package mutating func key(named name: UnsafeRawBufferPointer, at now: Int) -> TicketKey? {
        dropWhatIsOver(at: now)
        return [current, previous].lazy.compactMap { $0 }.first { $0.name.elementsEqual(name) }
    }

    /// The bytes of a key are wiped with the last reference.
    private mutating func dropWhatIsOver(at now: Int) {
        if let key = previous, now - key.birth >= 2 * Self.period { previous = nil }
        if let key = current, now - key.birth >= 2 * Self.period { current = nil }
    }
}

/// What encrypts and authenticates tickets, and the name that tickets have in front.
package final class TicketKey: @unchecked Sendable {
    // Unchecked: the bytes are written once, before anybody else sees them.
    package let name: [UInt8]
    let birth: Int
    private let secret: SecretBytes

    static let nameLength = 16

    /// Made inside a callback of OpenSSL's, so not through `OpenSSLCall`: that would take the reason for a
    /// failure from the call around it.
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

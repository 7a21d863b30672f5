internal import COpenSSL

/// The keys of one context's session tickets, of which the newest encrypts. A value: the time is told to it, in seconds of any one clock.
///
/// What is over goes when the ring is next asked: without handshakes nothing would be encrypted with a newer key either.
package struct TicketKeyRing {
    /// The seconds for which a key encrypts. For as many again it decrypts, so that it outlives each ticket that it has made.
    package static let period = 3600

    private var current: TicketKey
    private var previous: TicketKey?

    package init(at now: Int) throws(TLSError) {
        current = try TicketKey(at: now)
    }

    /// The key that encrypts now: a new one, when the period of the last one is over.
    package mutating func keyForSealing(at now: Int) throws(TLSError) -> TicketKey {
        dropWhatIsOver(at: now)
        if now - current.birth >= Self.period {
            let next = try TicketKey(at: now)
            if canOpen(current, at: now) { previous = current }
            current = next
        }
        return current
    }

    /// The key of that name, while it decrypts.
    package mutating func key(named name: UnsafeRawBufferPointer, at now: Int) -> TicketKey? {
        dropWhatIsOver(at: now)
        return [current, previous].lazy.compactMap { $0 }.first { canOpen($0, at: now) && $0.name.elementsEqual(name) }
    }

    private func canOpen(_ key: TicketKey, at now: Int) -> Bool {
        now - key.birth < 2 * Self.period
    }

    /// Its bytes are wiped with the last reference.
    private mutating func dropWhatIsOver(at now: Int) {
        if let key = previous, !canOpen(key, at: now) { previous = nil }
    }
}

/// What encrypts and authenticates tickets, and the name that tickets have in front.
package final class TicketKey: @unchecked Sendable {
    // Unchecked: the bytes are written once, before anybody else sees them.
    package let name: [UInt8]
    let birth: Int
    private let secret: SecretBytes

    static let nameLength = 16

    fileprivate init(at birth: Int) throws(TLSError) {
        var name = [UInt8](repeating: 0, count: Self.nameLength)
        try OpenSSLCall.requireSuccess("RAND_bytes") { RAND_bytes(&name, Int32(name.count)) }
        self.name = name
        self.birth = birth
        secret = try SecretBytes(randomCount: 64)
    }

    /// For AES-256.
    var forCipher: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.bytes[..<32]) }
    /// For HMAC-SHA256.
    var forAuthentication: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.bytes[32...]) }
}

internal import COpenSSL

/// A key that encrypts and authenticates session tickets, with the name that its tickets start with.
public final class TLSTicketKey: Sendable {
    /// The 16 bytes that identify the key of a ticket. The name is public.
    public let name: [UInt8]
    /// When the key was created, by the clock of its ring; 0 for a key supplied by the program.
    let birth: Int
    // Safe, because the bytes are written once, before the object is shared.
    nonisolated(unsafe) private let secret: SecretBytes

    static let nameLength = 16

    /// Creates a key from 80 bytes: its name (16), the key for HMAC-SHA256 (32) and the key for AES-256
    /// (32), as in the files of HAProxy and nginx.
    ///
    /// - Throws: `invalidSettings` for any other number of bytes.
    public convenience init(bytes: [UInt8]) throws(TLSError) {
        guard bytes.count == Self.length else {
            throw TLSError(
                .invalidSettings, "a session ticket key must be \(Self.length) bytes long, but is \(bytes.count)",
                operation: "TLSTicketKey")
        }
        self.init(SecretBytes(copying: bytes))
    }

    static let length = 80

    /// - Parameter birth: The time of creation, by the clock of the caller.
    init(_ bytes: SecretBytes, birth: Int = 0) {
        (name, secret) = bytes.withBytes { bytes in
            (Array(bytes.prefix(Self.nameLength)), SecretBytes(copying: bytes.dropFirst(Self.nameLength)))
        }
        self.birth = birth
    }

    /// Writes the 80 bytes from which `init(bytes:)` creates this key.
    func copy(to room: UnsafeMutableRawBufferPointer) {
        room.copyBytes(from: name)
        withExtendedLifetime(self) {
            UnsafeMutableRawBufferPointer(rebasing: room[Self.nameLength...]).copyMemory(from: secret.keptBytes)
        }
    }

    /// Creates a random key. This runs inside an OpenSSL callback, so it does not use `OpenSSLCall`,
    /// which would hide the reason for a failure from the outer call.
    init?(at birth: Int) {
        var name = [UInt8](repeating: 0, count: Self.nameLength)
        guard RAND_bytes(&name, Int32(name.count)) == 1, let secret = SecretBytes(randomCount: 64) else { return nil }
        self.name = name
        self.birth = birth
        self.secret = secret
    }

    // Both properties point into the key: use them inside `withExtendedLifetime`.

    /// The key for HMAC-SHA256.
    var forAuthentication: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.keptBytes[..<32]) }
    /// The key for AES-256.
    var forCipher: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.keptBytes[32...]) }
}

/// A source of session ticket keys, which lets several server processes resume each other's sessions.
/// `TLSTicketKeyFile` is an implementation. The example `shared-tickets` reads the keys from Redis.
public protocol TLSTicketKeySource: AnyObject, Sendable {
    /// The current keys. The library reads this property whenever it issues or decrypts tickets, possibly
    /// on several of its threads concurrently, so the getter must not block. The library holds no lock
    /// during the call, so the getter may request a channel binding from a socket.
    var keys: TLSTicketKeys { get }
}

/// The session ticket keys at a point in time.
public struct TLSTicketKeys: Sendable {
    /// The key for new tickets.
    public let current: TLSTicketKey
    /// Keys that only decrypt: the previous key, and the next key, which another process may already use.
    public let decryptionOnly: [TLSTicketKey]

    /// Creates a set of keys.
    public init(current: TLSTicketKey, decryptionOnly: [TLSTicketKey] = []) {
        self.current = current
        self.decryptionOnly = decryptionOnly
    }

    func key(named name: UnsafeRawBufferPointer) -> (key: TLSTicketKey, encrypts: Bool)? {
        if current.name.elementsEqual(name) { return (current, true) }
        return decryptionOnly.first { $0.name.elementsEqual(name) }.map { ($0, false) }
    }
}

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

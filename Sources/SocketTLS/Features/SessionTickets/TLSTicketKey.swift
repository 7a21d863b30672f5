internal import COpenSSL

/// A key that encrypts and authenticates session tickets, and the name at the front of its tickets.
public final class TLSTicketKey: @unchecked Sendable {
    // Unchecked: the bytes are written once, before anyone else sees them.

    /// 16 bytes, by which the key of a ticket is found. They are public.
    public let name: [UInt8]
    /// When it was made, by the clock of its ring; 0 for a key from outside.
    let birth: Int
    private let secret: SecretBytes

    static let nameLength = 16

    /// A key of 80 bytes: its name (16), the key for HMAC-SHA256 (32) and the key for AES-256 (32), as in the
    /// files of HAProxy and nginx.
    ///
    /// - Throws: `invalidSettings` for any other number of bytes.
    public convenience init(bytes: [UInt8]) throws(TLSError) {
        guard bytes.count == Self.length else {
            throw TLSError(
                .invalidSettings, "A key for session tickets has \(Self.length) bytes, and not \(bytes.count).",
                operation: "TLSTicketKey")
        }
        self.init(SecretBytes(copying: bytes))
    }

    /// The bytes of a key.
    static let length = 80

    /// Takes 80 bytes.
    init(_ bytes: SecretBytes) {
        (name, secret) = bytes.withBytes { bytes in
            (Array(bytes.prefix(Self.nameLength)), SecretBytes(copying: bytes.dropFirst(Self.nameLength)))
        }
        birth = 0
    }

    /// A random key. It is made inside a callback of OpenSSL, so this does not use `OpenSSLCall`:
    /// that would take the reason for a failure away from the outer call.
    init?(at birth: Int) {
        var name = [UInt8](repeating: 0, count: Self.nameLength)
        guard RAND_bytes(&name, Int32(name.count)) == 1, let secret = SecretBytes(randomCount: 64) else { return nil }
        self.name = name
        self.birth = birth
        self.secret = secret
    }

    // Both point into the key: use them inside `withExtendedLifetime`.

    /// For HMAC-SHA256.
    var forAuthentication: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.keptBytes[..<32]) }
    /// For AES-256.
    var forCipher: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: secret.keptBytes[32...]) }
}

/// Where servers get the keys of their session tickets, so that several processes resume each other's
/// sessions. `TLSTicketKeyFile` is one.
public protocol TLSTicketKeySource: AnyObject, Sendable {
    /// The keys as they are now. It is asked whenever tickets are made or opened, on threads of the library,
    /// from several at a time: it must not block. No lock of the library is held, so it may ask a socket for
    /// a channel binding.
    var keys: TLSTicketKeys { get }
}

/// The keys of session tickets at one time.
public struct TLSTicketKeys: Sendable {
    /// The key of new tickets.
    public let current: TLSTicketKey
    /// Keys that only decrypt: the key of the time before, and the key of the time to come, which another
    /// process may use already.
    public let others: [TLSTicketKey]

    /// Keys from parts.
    public init(current: TLSTicketKey, others: [TLSTicketKey] = []) {
        self.current = current
        self.others = others
    }

    /// The key of that name, and whether it encrypts.
    func key(named name: UnsafeRawBufferPointer) -> (key: TLSTicketKey, encrypts: Bool)? {
        if current.name.elementsEqual(name) { return (current, true) }
        return others.first { $0.name.elementsEqual(name) }.map { ($0, false) }
    }
}

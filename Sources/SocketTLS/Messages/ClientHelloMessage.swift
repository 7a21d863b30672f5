/// The first handshake message of a client (RFC 5246, 7.4.1.2; RFC 8446, 4.1.2), before OpenSSL decodes it.
///
/// OpenSSL searches the whole list of groups for each key share. Both lists are limited only by the size of
/// the message: OpenSSL took 70 to 90 ms to process a 65 kB message filled with both lists. The entries are
/// therefore counted first. Each limit is several times what any client sends. The list of certificate
/// authorities has no separate limit, because Java can be configured to send 14 kB of authorities.
struct ClientHelloMessage {
    static let bytesOfMessage = 32 * 1024
    private static let bytesOfCipherSuites = 2 * 256
    /// The maximum size of an extension's contents in bytes, and a name for the contents, by extension
    /// number.
    private static let bytesOfExtensions: [Int: (limit: Int, name: String)] = [
        10: (2 + 2 * 64, "groups"), 13: (2 + 2 * 128, "signature algorithms"), 16: (4096, "application protocols"),
        50: (2 + 2 * 128, "signature algorithms"),
    ]
    private static let keyShare = 51
    private static let keyShareLimit = 16

    private let count: Int
    private let bytes: Slice<UnsafeRawBufferPointer>
    /// The sizes of the length fields of the session identifier, the DTLS cookie, the cipher suites and the
    /// compression methods.
    private let fieldSizes: [Int]

    /// The offset of the session identifier's length, after the header (4 bytes), the version (2 bytes) and
    /// the random (32 bytes).
    static let sessionIdentifier = 38

    /// - Parameters:
    ///   - message: The message, including a four-byte header.
    ///   - hasCookie: Whether this is a DTLS message (RFC 6347, 4.2.1).
    init(_ message: UnsafeRawBufferPointer, hasCookie: Bool = false) {
        count = message.count
        bytes = message.dropFirst(Self.sessionIdentifier)
        fieldSizes = hasCookie ? [1, 1, 2, 1] : [1, 2, 1]
    }

    /// The part of the message that exceeds its limit. `nil` if every part is within its limit, or if the
    /// message is malformed. OpenSSL itself rejects malformed messages.
    var excess: String? {
        if count > Self.bytesOfMessage { return "bytes" }
        var reader = FieldReader(bytes)
        for size in fieldSizes {
            guard let field = reader.field(lengthOf: size) else { return nil }
            if size == 2, field.count > Self.bytesOfCipherSuites { return "cipher suites" }
        }
        guard reader.number(of: 2) != nil else { return nil }
        while let type = reader.number(of: 2), let contents = reader.field(lengthOf: 2) {
            if let (limit, name) = Self.bytesOfExtensions[type], contents.count > limit { return name }
            if type == Self.keyShare, Self.hasTooManyShares(contents) { return "key shares" }
        }
        return nil
    }

    /// Calls `body` with the number and the contents of each extension. Returns false if the message is
    /// malformed.
    func forEachExtension(_ body: (Int, Slice<UnsafeRawBufferPointer>) -> Void) -> Bool {
        var reader = FieldReader(bytes)
        for size in fieldSizes where reader.field(lengthOf: size) == nil { return false }
        guard !reader.isAtEnd else { return true }
        guard let length = reader.number(of: 2), length == reader.rest.count else { return false }
        while !reader.isAtEnd {
            guard let type = reader.number(of: 2), let contents = reader.field(lengthOf: 2) else { return false }
            body(type, contents)
        }
        return true
    }

    private static func hasTooManyShares(_ contents: Slice<UnsafeRawBufferPointer>) -> Bool {
        var shares = FieldReader(contents.dropFirst(2))
        for _ in 0...keyShareLimit {
            guard shares.number(of: 2) != nil, shares.field(lengthOf: 2) != nil else { return false }
        }
        return true
    }
}

/// The `pre_shared_key` extension of a ClientHello (RFC 8446, section 4.2.11).
struct PreSharedKeyList {
    /// The identities to look up, in order. Empty if the extension is malformed; OpenSSL then rejects it.
    private(set) var identities: [[UInt8]] = []
    private(set) var binders: [[UInt8]] = []
    /// The length of all binders, including their length field. They are the last bytes of a ClientHello.
    private(set) var byteCountOfBinders = 0

    /// The maximum number of identities to look up for a client: each one costs a call to the program's
    /// function.
    static let limit = 8

    init(_ bytes: some Collection<UInt8>) {
        Array(bytes).withUnsafeBytes { read(FieldReader($0)) }
    }

    private mutating func read(_ reader: FieldReader) {
        var reader = reader
        guard let list = reader.field(lengthOf: 2) else { return }
        if reader.rest.count >= 2 { byteCountOfBinders = reader.rest.count }
        var proofs = FieldReader(reader.rest.dropFirst(2))
        while binders.count < Self.limit, let binder = proofs.field(lengthOf: 1) { binders.append(Array(binder)) }
        var offers = FieldReader(list)
        // Each identity is followed by its age (4 bytes).
        while identities.count < Self.limit, let identity = offers.field(lengthOf: 2), !identity.isEmpty, offers.bytes(4) != nil {
            identities.append(Array(identity))
        }
    }
}

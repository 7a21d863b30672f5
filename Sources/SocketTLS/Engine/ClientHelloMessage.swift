/// The first handshake message of a client (RFC 5246, 7.4.1.2; RFC 8446, 4.1.2), before OpenSSL decodes it.
///
/// OpenSSL searches the whole list of groups for each key share, and limits neither but by the size of the
/// message: a message of 65 kB with both lists full took 70 to 90 ms. So we count the entries first. Each
/// limit is several times what any client sends; Java can be told to send 14 kB of authorities.
struct ClientHelloMessage {
    static let bytesOfMessage = 32 * 1024
    private static let bytesOfCipherSuites = 2 * 256
    /// For each extension number: the most bytes of its contents, and their name.
    private static let bytesOfExtensions: [Int: (limit: Int, name: String)] = [
        10: (2 + 2 * 64, "groups"), 13: (2 + 2 * 128, "signature algorithms"), 16: (4096, "application protocols"),
        50: (2 + 2 * 128, "signature algorithms"),
    ]
    private static let keyShare = 51
    private static let keyShareLimit = 16

    private let count: Int
    private var bytes: Slice<UnsafeRawBufferPointer>

    /// The offset of the session identifier's length: behind the header (4), the version (2) and the random
    /// bytes (32).
    static let sessionIdentifier = 38

    /// - Parameter message: The message with its header of four bytes.
    init(_ message: UnsafeRawBufferPointer) {
        count = message.count
        bytes = message.dropFirst(Self.sessionIdentifier)
    }

    /// What the message has too much of; nil if nothing, and for a message that OpenSSL refuses by itself.
    var excess: String? {
        if count > Self.bytesOfMessage { return "bytes" }
        var rest = self
        guard rest.take(lengthOf: 1) != nil, let suites = rest.take(lengthOf: 2) else { return nil }
        if suites.count > Self.bytesOfCipherSuites { return "cipher suites" }
        guard rest.take(lengthOf: 1) != nil, rest.number(of: 2) != nil else { return nil }
        while let type = rest.number(of: 2), let contents = rest.take(lengthOf: 2) {
            if let (limit, name) = Self.bytesOfExtensions[type], contents.count > limit { return name }
            if type == Self.keyShare, Self.hasTooManyShares(contents) { return "key shares" }
        }
        return nil
    }

    /// Calls `body` with the number and the contents of each extension; false for a message that is not well
    /// formed.
    func forEachExtension(_ body: (Int, Slice<UnsafeRawBufferPointer>) -> Void) -> Bool {
        var rest = self
        guard rest.take(lengthOf: 1) != nil, rest.take(lengthOf: 2) != nil, rest.take(lengthOf: 1) != nil else { return false }
        guard !rest.bytes.isEmpty else { return true }
        guard let length = rest.number(of: 2), length == rest.bytes.count else { return false }
        while !rest.bytes.isEmpty {
            guard let type = rest.number(of: 2), let contents = rest.take(lengthOf: 2) else { return false }
            body(type, contents)
        }
        return true
    }

    private static func hasTooManyShares(_ contents: Slice<UnsafeRawBufferPointer>) -> Bool {
        var shares = ClientHelloMessage(contents.dropFirst(2))
        for _ in 0...keyShareLimit {
            guard shares.number(of: 2) != nil, shares.take(lengthOf: 2) != nil else { return false }
        }
        return true
    }

    private init(_ bytes: Slice<UnsafeRawBufferPointer>) {
        count = bytes.count
        self.bytes = bytes
    }

    private mutating func take(lengthOf size: Int) -> Slice<UnsafeRawBufferPointer>? {
        guard let length = number(of: size), length <= bytes.count else { return nil }
        defer { bytes = bytes.dropFirst(length) }
        return bytes.prefix(length)
    }

    private mutating func number(of size: Int) -> Int? {
        guard bytes.count >= size else { return nil }
        defer { bytes = bytes.dropFirst(size) }
        return bytes.prefix(size).reduce(0) { $0 << 8 | Int($1) }
    }
}

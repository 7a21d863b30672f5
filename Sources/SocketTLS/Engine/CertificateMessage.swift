internal import Glibc

/// The handshake message with a peer's certificates (RFC 5246, 7.4.2; RFC 8446, 4.4.2), before OpenSSL
/// decodes it.
///
/// OpenSSL decodes every certificate and key in it, at 0.2 ms each, before it asks anyone: a message of the
/// smallest certificates costs a hundred times what it costs to send. So we count them first.
struct CertificateMessage {
    private var bytes: Slice<UnsafeRawBufferPointer>
    private let hasExtensions: Bool

    /// - Parameter message: The message with its header of four bytes.
    init(_ message: UnsafeRawBufferPointer, isTLS13: Bool) {
        bytes = message.dropFirst(4)
        hasExtensions = isTLS13
    }

    /// Where the first certificate begins, if there are more than `limit`; nil for fewer, and for a message
    /// that OpenSSL refuses by itself.
    func startOfFirst(whenMoreThan limit: Int) -> Int? {
        var rest = self
        if hasExtensions, !rest.skip(lengthOf: 1) { return nil }
        guard rest.number(of: 3) != nil else { return nil }
        let start = rest.bytes.startIndex + 3
        for _ in 0..<limit where !rest.skipCertificate() { return nil }
        return rest.bytes.isEmpty ? nil : start
    }

    var describesCurve: Bool { Self.describesCurve(in: UnsafeRawBufferPointer(rebasing: bytes)) }

    /// True if a key in certificates is on a curve that is described and not named (RFC 3279, 2.3.5). Such a
    /// description contains one of the object identifiers 1.2.840.10045.1.1 and 1.2.840.10045.1.2, which
    /// occur nowhere else. To be asked before OpenSSL decodes any bytes of a peer that may hold certificates.
    ///
    /// Only the contents of the identifiers are searched for, because their length can be encoded in several
    /// ways.
    static func describesCurve(in bytes: UnsafeRawBufferPointer) -> Bool {
        var rest = bytes
        while let start = rest.baseAddress, let hit = memchr(start, Int32(kindsOfField[0]), rest.count) {
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(UnsafeRawPointer(hit) - start))
            if rest.starts(with: kindsOfField), rest.count > 6, (1...2).contains(rest[6]) { return true }
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst())
        }
        return false
    }

    /// The bytes that the two identifiers have in common.
    private static let kindsOfField: [UInt8] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x01]

    private mutating func skipCertificate() -> Bool {
        skip(lengthOf: 3) && (!hasExtensions || skip(lengthOf: 2))
    }

    private mutating func skip(lengthOf count: Int) -> Bool {
        guard let length = number(of: count), length <= bytes.count else { return false }
        bytes = bytes.dropFirst(length)
        return true
    }

    private mutating func number(of count: Int) -> Int? {
        guard bytes.count >= count else { return nil }
        defer { bytes = bytes.dropFirst(count) }
        return bytes.prefix(count).reduce(0) { $0 << 8 | Int($1) }
    }
}

internal import Glibc

/// The handshake message with the peer's certificates (RFC 5246, 7.4.2; RFC 8446, 4.4.2), before OpenSSL
/// decodes it.
///
/// OpenSSL decodes every certificate and key in the message, at 0.2 ms each, before any callback can reject
/// it. A message full of minimal certificates costs a hundred times as much to decode as to send, so the
/// certificates are counted first.
struct CertificateMessage {
    private let bytes: Slice<UnsafeRawBufferPointer>
    private let hasExtensions: Bool

    /// - Parameter message: The message, including its four-byte header.
    init(_ message: UnsafeRawBufferPointer, isTLS13: Bool) {
        bytes = message.dropFirst(4)
        hasExtensions = isTLS13
    }

    /// Returns the offset of the first certificate if the message contains more than `limit` certificates.
    /// Otherwise, or if the message is malformed, returns `nil`. OpenSSL itself rejects malformed messages.
    func startOfFirst(whenMoreThan limit: Int) -> Int? {
        var reader = FieldReader(bytes)
        if hasExtensions, reader.field(lengthOf: 1) == nil { return nil }
        guard reader.number(of: 3) != nil else { return nil }
        let start = reader.offset + 3
        for _ in 0..<limit where !skipCertificate(&reader) { return nil }
        return reader.isAtEnd ? nil : start
    }

    private func skipCertificate(_ reader: inout FieldReader) -> Bool {
        reader.field(lengthOf: 3) != nil && (!hasExtensions || reader.field(lengthOf: 2) != nil)
    }

    var describesCurve: Bool { Self.describesCurve(in: UnsafeRawBufferPointer(rebasing: bytes)) }

    /// Whether a key in the certificates is on a curve with explicit parameters instead of a name (RFC 3279,
    /// 2.3.5). Such parameters contain one of the object identifiers 1.2.840.10045.1.1 and 1.2.840.10045.1.2,
    /// which do not occur elsewhere. Check this before OpenSSL decodes any of the peer's bytes that may
    /// contain certificates.
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

    private static let kindsOfField: [UInt8] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x01]
}

internal import Glibc

/// The handshake message in which a peer shows its certificates (RFC 5246, 7.4.2; RFC 8446, 4.4.2), before
/// OpenSSL takes it apart.
///
/// OpenSSL decodes every certificate and key in it, at a fifth of a millisecond each, before anyone is asked:
/// a message of the smallest ones costs a hundred times what it costs to send. So they are counted first.
struct CertificateMessage {
    private var bytes: Slice<UnsafeRawBufferPointer>
    private let hasExtensions: Bool

    /// - Parameter message: With its header of four bytes.
    init(_ message: UnsafeRawBufferPointer, isTLS13: Bool) {
        bytes = message.dropFirst(4)
        hasExtensions = isTLS13
    }

    /// Where the first certificate begins, when there are more than `limit`; nil for fewer, and for what
    /// OpenSSL will refuse by itself.
    func startOfFirst(whenMoreThan limit: Int) -> Int? {
        var rest = self
        if hasExtensions, !rest.skip(lengthOf: 1) { return nil }
        guard rest.number(of: 3) != nil else { return nil }
        let start = rest.bytes.startIndex + 3
        for _ in 0..<limit where !rest.skipCertificate() { return nil }
        return rest.bytes.isEmpty ? nil : start
    }

    /// True when a key in it is on a curve that is described and not named (RFC 3279, 2.3.5): the kinds of
    /// field of such a description have the object identifiers 1.2.840.10045.1.1 and 1.2.840.10045.1.2, which
    /// occur nowhere else.
    ///
    /// The contents of the identifiers alone are looked for, since their length can be written in several
    /// ways.
    var describesCurve: Bool {
        var rest = UnsafeRawBufferPointer(rebasing: bytes)
        while let start = rest.baseAddress, let hit = memchr(start, Int32(Self.kindsOfField[0]), rest.count) {
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(UnsafeRawPointer(hit) - start))
            if rest.starts(with: Self.kindsOfField), rest.count > 6, (1...2).contains(rest[6]) { return true }
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst())
        }
        return false
    }

    /// What the two identifiers have in common.
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

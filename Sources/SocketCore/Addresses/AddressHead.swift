internal import Glibc

/// The bytes of a `sockaddr_in6`, or the first bytes of any other `sockaddr`, stored as integers.
struct AddressHead: Hashable, Sendable {
    private var words: (UInt64, UInt64, UInt64, UInt32) = (0, 0, 0, 0)

    init() {}

    /// Reads a complete `sockaddr_in` or `sockaddr_in6`. Returns `nil` for anything else.
    init?(internet bytes: UnsafeRawBufferPointer) {
        switch bytes.count {
        case MemoryLayout<sockaddr_in>.size:
            words.0 = bytes.loadUnaligned(as: UInt64.self)
            words.1 = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            guard family == AF_INET else { return nil }
        case MemoryLayout<sockaddr_in6>.size:
            words = bytes.loadUnaligned(as: (UInt64, UInt64, UInt64, UInt32).self)
            guard family == AF_INET6 else { return nil }
        default: return nil
        }
    }

    init(_ host: in_addr, _ port: UInt16) {
        let beginning = UInt64(UInt16(AF_INET)) | UInt64(port.bigEndian) << 16
        words.0 = (beginning | UInt64(host.s_addr) << 32).littleEndian
    }

    static var size: Int { MemoryLayout<sockaddr_in6>.size }

    /// The first field of every `sockaddr`.
    var family: CInt { CInt(UInt16(truncatingIfNeeded: words.0.littleEndian)) }

    /// The second field of `sockaddr_in` and `sockaddr_in6`.
    var port: UInt16 { UInt16(bigEndian: UInt16(truncatingIfNeeded: words.0.littleEndian >> 16)) }

    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        withUnsafeBytes(of: words, body)
    }

    mutating func withMutableBytes<Result>(_ body: (UnsafeMutableRawBufferPointer) -> Result) -> Result {
        withUnsafeMutableBytes(of: &words, body)
    }

    func copy(to room: UnsafeMutableRawPointer) {
        room.storeBytes(of: words, as: (UInt64, UInt64, UInt64, UInt32).self)
    }

    func hasHost(of other: AddressHead) -> Bool {
        guard family == other.family else { return false }
        if family == AF_INET { return words.0 >> 32 == other.words.0 >> 32 }
        return words.1 == other.words.1 && words.2 == other.words.2 && words.3 == other.words.3
    }

    static func == (left: AddressHead, right: AddressHead) -> Bool { left.words == right.words }

    func hash(into hasher: inout Hasher) {
        hasher.combine(words.0)
        // All bytes of an IPv4 address are in the first word.
        guard family != AF_INET else { return }
        hasher.combine(words.1)
        hasher.combine(words.2)
        hasher.combine(words.3)
    }
}

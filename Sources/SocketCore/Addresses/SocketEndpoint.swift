internal import CLinux
public import FoundationEssentials
internal import Glibc
internal import SocketBuffers

/// A socket address: IPv4, IPv6, Unix-domain, or virtual machine (vsock).
///
/// It stores the kernel's `sockaddr` and never performs a name lookup. To read an address from a `Data`, use
/// `SocketEndpoint(data:)` and its `host`, `port` and `family`, which replace the class methods of
/// `GCDAsyncSocket`.
public struct SocketEndpoint: Sendable {
    // Each connection stores two addresses, and most fit in the head. A `sockaddr_storage` has 128 bytes.
    private(set) var head = AddressHead()
    var length: UInt32
    /// The bytes after `head`, which hold most of a Unix-domain path.
    private var tail: [UInt8]?

    var storage: sockaddr_storage {
        get {
            var storage = sockaddr_storage()
            withUnsafeMutableBytes(of: &storage) { room in
                head.withBytes { room.copyMemory(from: $0) }
                if let tail { UnsafeMutableRawBufferPointer(rebasing: room.dropFirst(AddressHead.size)).copyBytes(from: tail) }
            }
            return storage
        }
        set {
            withUnsafeBytes(of: newValue) { bytes in
                head.withMutableBytes { $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes.prefix(AddressHead.size))) }
                tail = length > AddressHead.size ? Array(bytes.dropFirst(AddressHead.size)) : nil
            }
        }
    }

    init(_ head: AddressHead, _ length: UInt32) {
        (self.head, self.length) = (head, length)
    }

    /// The address family.
    @nonexhaustive
    public enum Family: Sendable, Hashable {
        /// IPv4 (`AF_INET`).
        case ipv4
        /// IPv6 (`AF_INET6`).
        case ipv6
        /// A Unix-domain socket (`AF_UNIX`).
        case unix
        /// A socket between a virtual machine and its host (`AF_VSOCK`).
        case vsock
    }

    /// Creates an address from a `sockaddr_in`, `sockaddr_in6`, `sockaddr_un` or `sockaddr_vm` as laid out
    /// in memory.
    ///
    /// Returns `nil` for any other family, or if `data` is too short or longer than a `sockaddr_storage`.
    public init?(data: Data) {
        guard let address = data.withUnsafeBytes({ SocketEndpoint($0) }) else { return nil }
        self = address
    }

    init?(storage: UnsafePointer<sockaddr_storage>, length: socklen_t) {
        self.init(UnsafeRawBufferPointer(start: storage, count: min(Int(length), MemoryLayout<sockaddr_storage>.size)))
    }

    /// Reads a `sockaddr`. Returns `nil` for an unsupported family or an invalid length.
    init?(_ bytes: UnsafeRawBufferPointer) {
        let family = MemoryLayout<sa_family_t>.size
        guard bytes.count >= family, bytes.count <= MemoryLayout<sockaddr_storage>.size else { return nil }
        let minimum: Int
        switch CInt(bytes.loadUnaligned(as: sa_family_t.self)) {
        case AF_INET: minimum = MemoryLayout<sockaddr_in>.size
        case AF_INET6: minimum = MemoryLayout<sockaddr_in6>.size
        case AF_VSOCK: minimum = MemoryLayout<sockaddr_vm>.size
        case AF_UNIX: minimum = family
        default: return nil
        }
        guard bytes.count >= minimum else { return nil }
        length = socklen_t(bytes.count)
        head.withMutableBytes {
            $0.copyMemory(from: UnsafeRawBufferPointer(start: bytes.baseAddress, count: min(bytes.count, AddressHead.size)))
        }
        if bytes.count > AddressHead.size { tail = Array(bytes.dropFirst(AddressHead.size)) }
    }

    /// Parses an address literal: IPv4 in dotted decimal notation (`192.0.2.1`), or IPv6 (`2001:db8::1`)
    /// with an optional zone (`fe80::1%eth0`, RFC 4007, section 11).
    ///
    /// Returns `nil` for everything else: a name, brackets, a zone that is empty or names an interface that
    /// does not exist, and text with a zero byte. The short forms and other bases of inet_aton(3), such as
    /// `127.1`, `2130706433`, `0x7f.0.0.1` and `0177.0.0.1`, are also rejected, because programs interpret
    /// them differently.
    public init?(literal: String, port: UInt16) {
        guard literal.utf8.count <= Self.longestLiteral, !literal.utf8.contains(0) else { return nil }
        let zone = literal.utf8.firstIndex(of: UInt8(ascii: "%")).map { literal.utf8[$0...].dropFirst() }
        guard zone?.isEmpty != true else { return nil }
        if literal.utf8.contains(UInt8(ascii: ":")) {
            self.init(ipv6Literal: literal, port)
        } else {
            self.init(ipv4Literal: literal, port)
        }
    }

    /// An IPv6 address has at most 45 bytes, followed by `%` and an interface name of at most 15 bytes
    /// (`IF_NAMESIZE`).
    static let longestLiteral = 45 + 1 + 15

    /// Uses inet_pton(3), which does not accept short forms.
    private init?(ipv4Literal literal: String, _ port: UInt16) {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        guard inet_pton(AF_INET, literal, &address.sin_addr) == 1 else { return nil }
        guard let parsed = withUnsafeBytes(of: address, { SocketEndpoint($0) }) else { return nil }
        self = parsed
    }

    /// Uses getaddrinfo(3), which supports zones.
    private init?(ipv6Literal literal: String, _ port: UInt16) {
        var hints = addrinfo()
        hints.ai_family = AF_INET6
        hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(literal, String(port), &hints, &list) == 0, let first = list else { return nil }
        defer { freeaddrinfo(list) }
        self.init(addrinfo: first.pointee)
    }

    init?(addrinfo: addrinfo) {
        guard let address = addrinfo.ai_addr else { return nil }
        self.init(UnsafeRawBufferPointer(start: address, count: Int(addrinfo.ai_addrlen)))
    }

    /// The address family.
    public var family: Family {
        switch head.family {
        case AF_INET: .ipv4
        case AF_INET6: .ipv6
        case AF_VSOCK: .vsock
        default: .unix
        }
    }

    /// The numeric host, such as `127.0.0.1` or `fe80::1%eth0`. `nil` if this is not an IPv4 or IPv6
    /// address.
    public var host: String? {
        guard family.isInternet else { return nil }
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let result = withSockaddr { address, length in
            getnameinfo(address, length, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
        }
        guard result == 0 else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    /// The port. `nil` if this is not an IPv4 or IPv6 address.
    public var port: UInt16? {
        family.isInternet ? head.port : nil
    }

    package func withPort(_ port: UInt16) -> SocketEndpoint {
        var address = self
        withUnsafeMutableBytes(of: &address.storage) { bytes in
            switch family {
            case .ipv4: bytes.storeBytes(of: port.bigEndian, toByteOffset: Self.ipv4PortOffset, as: UInt16.self)
            case .ipv6: bytes.storeBytes(of: port.bigEndian, toByteOffset: Self.ipv6PortOffset, as: UInt16.self)
            case .unix, .vsock: break
            }
        }
        return address
    }

    private static let ipv4PortOffset = MemoryLayout<sockaddr_in>.offset(of: \.sin_port) ?? 2
    private static let ipv6PortOffset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_port) ?? 2

    /// The bytes of the kernel's `sockaddr`.
    public var data: Data {
        withUnsafeBytes(of: storage) { Data($0.prefix(Int(length))) }
    }

    func withSockaddr<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withUnsafePointer(to: storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }
}

extension SocketEndpoint: Hashable {
    /// Whether the `sockaddr` bytes of two addresses are equal.
    public static func == (left: SocketEndpoint, right: SocketEndpoint) -> Bool {
        guard left.length == right.length, left.head == right.head else { return false }
        return left.tail == nil && right.tail == nil || left.tail == right.tail
    }

    /// Hashes the `sockaddr` bytes.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(head)
        if let tail { hasher.combine(tail) }
    }
}

extension SocketEndpoint: CustomStringConvertible {
    /// The address as text: `127.0.0.1:25`, `[::1]:25`, `vsock:2:1024`, `unix:/run/service` for a path,
    /// `unix:@service` for an abstract name, and `unix:` for an unnamed socket.
    ///
    /// Control and format characters in a path or name, which the peer may have chosen, are replaced with
    /// question marks.
    public var description: String {
        if let contextID, let vsockPort { return "vsock:\(contextID):\(vsockPort)" }
        guard let host, let port else { return "unix:" + Self.printable(unixPath ?? abstractName.map { "@" + $0 } ?? "") }
        return family == .ipv6 ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    private static func printable(_ text: String) -> String {
        String(String.UnicodeScalarView(text.unicodeScalars.map { $0.isPrintable ? $0 : "?" }))
    }
}

extension SocketEndpoint.Family {
    package var isInternet: Bool {
        switch self {
        case .ipv4, .ipv6: true
        case .unix, .vsock: false
        }
    }
}

/// The IP versions that a socket may use.
package struct AddressFamilies: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let ipv4 = AddressFamilies(rawValue: 1 << 0)
    package static let ipv6 = AddressFamilies(rawValue: 1 << 1)
    package static let both: AddressFamilies = [.ipv4, .ipv6]

    /// Whether a socket may use an address of this family. Families other than IPv4 and IPv6 are always
    /// allowed.
    package func allows(_ family: SocketEndpoint.Family) -> Bool {
        switch family {
        case .ipv4: contains(.ipv4)
        case .ipv6: contains(.ipv6)
        case .unix, .vsock: true
        }
    }
}

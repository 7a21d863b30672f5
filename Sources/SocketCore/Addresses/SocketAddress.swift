internal import CLinux
public import FoundationEssentials
internal import Glibc

/// The address of one end of a socket: IPv4, IPv6, Unix-domain, or of a virtual machine.
///
/// It holds the kernel's `sockaddr`, and resolves nothing. The `host`, `port` and `family` of
/// `SocketAddress(data:)` take the place of the class methods of `GCDAsyncSocket` for an address in a `Data`.
public struct SocketAddress: Sendable {
    // Each connection keeps two addresses, and most fit into the head: a `sockaddr_storage` has 128 bytes.
    private(set) var head = AddressHead()
    var length: UInt32
    /// The bytes behind `head`: most of a Unix-domain path.
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

    /// Which kind of address this is.
    public enum Family: Sendable, Hashable {
        /// `AF_INET`.
        case ipv4
        /// `AF_INET6`.
        case ipv6
        /// `AF_UNIX`.
        case unix
        /// `AF_VSOCK`: between a virtual machine and its host.
        case virtualMachine
    }

    /// The address in `data`, a `sockaddr_in`, `sockaddr_in6`, `sockaddr_un` or `sockaddr_vm` in memory
    /// order; nil for anything else, and for too few bytes.
    public init?(data: Data) {
        guard let address = data.withUnsafeBytes({ SocketAddress($0) }) else { return nil }
        self = address
    }

    /// The address that the kernel wrote into `storage`.
    init?(storage: UnsafePointer<sockaddr_storage>, length: socklen_t) {
        self.init(UnsafeRawBufferPointer(start: storage, count: min(Int(length), MemoryLayout<sockaddr_storage>.size)))
    }

    /// A `sockaddr` in memory; nil for another family, and for too few bytes.
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

    /// An address literal: four decimal numbers (`192.0.2.1`), or IPv6 (`2001:db8::1`), which may have a zone
    /// (`fe80::1%eth0`, RFC 4007, section 11).
    ///
    /// Nil for everything else: a name, brackets, a zone that is empty or names an interface that does not
    /// exist, a text with a zero byte, and the shorthands and other bases of inet_aton(3), such as `127.1`,
    /// `2130706433`, `0x7f.0.0.1` and `0177.0.0.1`, which programs read differently.
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

    /// The longest IPv6 address has 45 bytes, a zone begins with `%`, and the longest name of an interface
    /// has 15 (`IF_NAMESIZE`).
    static let longestLiteral = 45 + 1 + 15

    /// inet_pton(3) knows no shorthands.
    private init?(ipv4Literal literal: String, _ port: UInt16) {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        guard inet_pton(AF_INET, literal, &address.sin_addr) == 1 else { return nil }
        guard let parsed = withUnsafeBytes(of: address, { SocketAddress($0) }) else { return nil }
        self = parsed
    }

    /// getaddrinfo(3) knows zones.
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

    /// Which kind of address this is.
    public var family: Family {
        switch head.family {
        case AF_INET: .ipv4
        case AF_INET6: .ipv6
        case AF_VSOCK: .virtualMachine
        default: .unix
        }
    }

    /// The host in numbers, such as `127.0.0.1` or `fe80::1%eth0`; nil for a Unix-domain address.
    public var host: String? {
        guard family.isInternet else { return nil }
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let result = withSockaddr { address, length in
            getnameinfo(address, length, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
        }
        guard result == 0 else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    /// The port; nil for a Unix-domain address.
    public var port: UInt16? {
        family.isInternet ? head.port : nil
    }

    /// The same host with another port.
    package func withPort(_ port: UInt16) -> SocketAddress {
        var address = self
        withUnsafeMutableBytes(of: &address.storage) { bytes in
            switch family {
            case .ipv4: bytes.storeBytes(of: port.bigEndian, toByteOffset: Self.ipv4PortOffset, as: UInt16.self)
            case .ipv6: bytes.storeBytes(of: port.bigEndian, toByteOffset: Self.ipv6PortOffset, as: UInt16.self)
            case .unix, .virtualMachine: break
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

extension SocketAddress: Hashable {
    /// Two addresses are equal when their `sockaddr` bytes are.
    public static func == (left: SocketAddress, right: SocketAddress) -> Bool {
        guard left.length == right.length, left.head == right.head else { return false }
        return left.tail == nil && right.tail == nil || left.tail == right.tail
    }

    /// Hashes the `sockaddr` bytes.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(head)
        if let tail { hasher.combine(tail) }
    }
}

extension SocketAddress: CustomStringConvertible {
    /// `127.0.0.1:25`, `[::1]:25`, `unix:/run/service` for a path, `unix:@service` for an abstract name and
    /// `unix:` for a socket without either.
    ///
    /// Control characters in a path or name, which the peer may have chosen, become question marks.
    public var description: String {
        if let contextID, let virtualMachinePort { return "vsock:\(contextID):\(virtualMachinePort)" }
        guard let host, let port else { return "unix:" + Self.printable(unixPath ?? abstractName.map { "@" + $0 } ?? "") }
        return family == .ipv6 ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    private static func printable(_ text: String) -> String {
        var printable = String.UnicodeScalarView()
        printable.append(contentsOf: text.unicodeScalars.map { $0.properties.generalCategory == .control ? "?" : $0 })
        return String(printable)
    }
}

extension SocketAddress.Family {
    /// IPv4 or IPv6.
    package var isInternet: Bool {
        switch self {
        case .ipv4, .ipv6: true
        case .unix, .virtualMachine: false
        }
    }
}

/// The versions of IP that a socket may use.
package struct AddressFamilies: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let ipv4 = AddressFamilies(rawValue: 1 << 0)
    package static let ipv6 = AddressFamilies(rawValue: 1 << 1)
    package static let both: AddressFamilies = [.ipv4, .ipv6]

    /// True for an address that a socket may use: of one of the families, or no IP address.
    package func allows(_ family: SocketAddress.Family) -> Bool {
        switch family {
        case .ipv4: contains(.ipv4)
        case .ipv6: contains(.ipv6)
        case .unix, .virtualMachine: true
        }
    }
}

// Rules of an interface's name:
//  1. It is `name`, `address`, `name:port`, `address:port` or `:port`. An IPv6 address may have brackets, and
//     must have them before a port.
//  2. With two colons or more outside brackets it is an IPv6 address. The number of an alias, such as
//     `eth0:1`, reads as a port.
//  3. A name that the kernel knows comes first; then addresses, as `SocketAddress(literal:)` reads them,
//     `localhost` and `loopback`.

internal import CLinux
internal import Glibc

/// One of this machine's network interfaces or addresses, as the user of a socket names it, with a local
/// port.
package struct LocalInterface: Hashable, Sendable {
    /// The addresses to bind to, IPv4 before IPv6, each with the port.
    package let addresses: [SocketAddress]
    /// The text that it was made from.
    package let text: String
    /// The kernel's number of the interface, which is the scope of link-local addresses on it; 0 when no
    /// interface is named.
    package let index: UInt32

    /// Looks the interface up in the kernel's list.
    package init(_ text: String) throws(InterfaceError) {
        guard text.utf8.count <= Self.longest else {
            throw InterfaceError(
                "the name of an interface has at most \(Self.longest) bytes, and this one has \(text.utf8.count)")
        }
        let (name, port) = try Self.split(text)
        let known = try Self.list()
        let named = known.filter { $0.name == name }
        self.text = text
        if name.isEmpty {
            (addresses, index) = (Self.literals(["0.0.0.0", "::"], port), 0)
        } else if !named.isEmpty {
            (addresses, index) = (Self.sorted(named.compactMap(\.address), port), named[0].index)
        } else if let address = SocketAddress(literal: name, port: port) {
            let owner = known.first { $0.address?.isSameHost(as: address) == true }
            (addresses, index) = ([address.withScope(ifMissing: owner?.index ?? 0)], owner?.index ?? 0)
        } else if name == "localhost" || name == "loopback" {
            (addresses, index) = (Self.literals(["127.0.0.1", "::1"], port), 0)
        } else {
            throw InterfaceError("no interface is named \(text)")
        }
        guard !addresses.isEmpty else { throw InterfaceError("the interface \(text) has no address") }
    }

    /// The source of a connection to `destination`; nil when the interface has no address of that family.
    ///
    /// A link-local destination has a link-local source and any other a global one, if there are both.
    package func source(for destination: SocketAddress) -> SocketAddress? {
        let candidates = addresses.filter { $0.family == destination.family }
        return candidates.first { $0.isLinkLocal == destination.isLinkLocal } ?? candidates.first
    }

    /// `destination`; a link-local one without a scope gets this interface's (RFC 4007, section 6).
    package func withScope(_ destination: SocketAddress) -> SocketAddress {
        destination.withScope(ifMissing: index)
    }

    /// An IPv6 address with a zone in brackets, and a port.
    private static let longest = "[]:65535".utf8.count + SocketAddress.longestLiteral

    private static func literals(_ hosts: [String], _ port: UInt16) -> [SocketAddress] {
        hosts.compactMap { SocketAddress(literal: $0, port: port) }
    }

    private static func sorted(_ addresses: [SocketAddress], _ port: UInt16) -> [SocketAddress] {
        let all = addresses.map { $0.withPort(port) }
        return all.filter { $0.family == .ipv4 } + all.filter { $0.family == .ipv6 }
    }
}

/// Why a text names no interface that can be used.
package struct InterfaceError: Error, Hashable, Sendable {
    package let message: String
    /// The system call that failed, if the text is not to blame.
    package let cause: SystemError?

    init(_ message: String) {
        self.message = message
        cause = nil
    }

    /// The kernel gave no list of its interfaces.
    init(_ cause: SystemError) {
        message = "the list of interfaces cannot be read: \(cause)"
        self.cause = cause
    }
}

// MARK: - Reading the text

extension LocalInterface {
    private static func split(_ text: String) throws(InterfaceError) -> (name: String, port: UInt16) {
        if text.hasPrefix("["), let end = text.firstIndex(of: "]") {
            let address = String(text[text.index(after: text.startIndex)..<end])
            guard SocketAddress(literal: address, port: 0)?.family == .ipv6 else {
                throw InterfaceError("\(text) has brackets around something other than an IPv6 address")
            }
            let rest = text[text.index(after: end)...]
            if rest.isEmpty { return (address, 0) }
            guard rest.first == ":" else { throw InterfaceError("\(text) has something other than a port after its bracket") }
            return (address, try port(rest.dropFirst(), of: text))
        }
        let colons = text.indices.filter { text[$0] == ":" }
        guard colons.count == 1 else { return (text, 0) }
        return (String(text[..<colons[0]]), try port(text[text.index(after: colons[0])...], of: text))
    }

    private static func port(_ digits: Substring, of text: String) throws(InterfaceError) -> UInt16 {
        guard digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let port = UInt16(digits) else {
            throw InterfaceError("\(text) has no port number after its colon")
        }
        return port
    }
}

// MARK: - The kernel's list

extension LocalInterface {
    private struct Entry {
        let name: String
        let index: UInt32
        /// Nil for an interface without an address, and for an address of another family than IP.
        let address: SocketAddress?
    }

    private static func list() throws(InterfaceError) -> [Entry] {
        var first: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&first) == 0 else { throw InterfaceError(SystemError("getifaddrs")) }
        defer { freeifaddrs(first) }
        var entries: [Entry] = []
        for entry in sequence(first: first, next: { $0?.pointee.ifa_next }).compactMap({ $0?.pointee }) {
            let name = String(cString: entry.ifa_name)
            entries.append(Entry(name: name, index: try index(of: name), address: address(of: entry)))
        }
        return entries
    }

    /// The kernel's number of an interface; 0 for one that is gone by now.
    private static func index(of name: String) throws(InterfaceError) -> UInt32 {
        let index = if_nametoindex(name)
        // The call opens a socket (if_nametoindex(3)). If that fails, a link-local address must not lose its
        // scope in silence.
        guard index != 0 || errno == ENODEV || errno == ENXIO else { throw InterfaceError(SystemError("if_nametoindex")) }
        return index
    }

    /// `ifa_addr` is null for an interface without any address, such as a tunnel (getifaddrs(3)).
    private static func address(of entry: ifaddrs) -> SocketAddress? {
        guard let address = entry.ifa_addr else { return nil }
        let length: Int
        switch CInt(address.pointee.sa_family) {
        case AF_INET: length = MemoryLayout<sockaddr_in>.size
        case AF_INET6: length = MemoryLayout<sockaddr_in6>.size
        default: return nil
        }
        return SocketAddress(UnsafeRawBufferPointer(start: address, count: length))
    }
}

// MARK: - Interfaces and addresses

extension SocketAddress {
    /// True for an IPv6 address of `fe80::/10`, which names a host only together with an interface (RFC 4291,
    /// section 2.5.6).
    fileprivate var isLinkLocal: Bool {
        guard let bytes = ipv6Bytes else { return false }
        return bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
    }

    /// The same address; a link-local one without a scope gets `scope`.
    fileprivate func withScope(ifMissing scope: UInt32) -> SocketAddress {
        guard isLinkLocal else { return self }
        var address = self
        withUnsafeMutableBytes(of: &address.storage) { bytes in
            guard bytes.load(fromByteOffset: Self.scopeOffset, as: UInt32.self) == 0 else { return }
            bytes.storeBytes(of: scope, toByteOffset: Self.scopeOffset, as: UInt32.self)
        }
        return address
    }

    /// True for the same IP address, whatever the port and the scope.
    fileprivate func isSameHost(as other: SocketAddress) -> Bool {
        switch (family, other.family) {
        case (.ipv4, .ipv4): ipv4Bytes == other.ipv4Bytes
        case (.ipv6, .ipv6): ipv6Bytes == other.ipv6Bytes
        default: false
        }
    }

    private var ipv4Bytes: [UInt8]? { family == .ipv4 ? bytes(from: Self.ipv4Offset, count: 4) : nil }
    private var ipv6Bytes: [UInt8]? { family == .ipv6 ? bytes(from: Self.ipv6Offset, count: 16) : nil }

    private func bytes(from offset: Int, count: Int) -> [UInt8] {
        withUnsafeBytes(of: storage) { Array($0[offset..<offset + count]) }
    }

    private static let ipv4Offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
    private static let ipv6Offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
    private static let scopeOffset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_scope_id) ?? 24
}

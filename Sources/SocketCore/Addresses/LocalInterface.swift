// Rules for the text that names an interface:
//  1. The forms are `name`, `address`, `name:port`, `address:port` and `:port`. Brackets around an IPv6
//     address are required if a port follows, and optional otherwise.
//  2. Text with two or more colons outside brackets is an IPv6 address. In an alias such as `eth0:1`, the
//     number is interpreted as a port.
//  3. The name of an existing interface takes precedence. Any other name must be an address that
//     `SocketEndpoint(literal:port:)` accepts, `localhost` or `loopback`.
//  4. These can be used without the kernel's list of interfaces, which a sandbox may refuse, except a
//     link-local address without a scope.

internal import CLinux
internal import Glibc

/// A network interface or address of this machine, as specified by the user of a socket, with a local port.
package struct LocalInterface: Hashable, Sendable {
    /// The addresses to bind to, IPv4 before IPv6, each with the port.
    package let addresses: [SocketEndpoint]
    package let text: String
    /// The kernel's index of the interface, which is the scope of link-local addresses on that interface.
    /// Zero if the text does not name an interface.
    package let index: UInt32

    /// Looks up the interface in the kernel's list.
    ///
    /// - Parameter needsIndex: Whether an address is useless without the index of its interface.
    package init(_ text: String, needsIndex: Bool = false) throws(InterfaceError) {
        guard text.utf8.count <= Self.longest else {
            throw InterfaceError(
                "an interface name must be at most \(Self.longest) bytes long, but is \(text.utf8.count)")
        }
        let (name, port) = try Self.split(text)
        let literal = SocketEndpoint(literal: name, port: port)
        let isComplete = literal.map { !$0.isLinkLocal || $0.scope != 0 } ?? (name.isEmpty || Self.loopbackNames.contains(name))
        let known = try Self.list(isOptional: isComplete && !needsIndex)
        let named = known.filter { $0.name == name }
        self.text = text
        if name.isEmpty {
            (addresses, index) = (Self.literals(["0.0.0.0", "::"], port), 0)
        } else if !named.isEmpty {
            (addresses, index) = (Self.sorted(named.compactMap(\.address), port), named[0].index)
        } else if let literal {
            let owner = known.first { $0.address?.isSameHost(as: literal) == true }
            (addresses, index) = ([literal.withScope(ifMissing: owner?.index ?? 0)], owner?.index ?? 0)
        } else if Self.loopbackNames.contains(name) {
            (addresses, index) = (Self.literals(["127.0.0.1", "::1"], port), 0)
        } else {
            throw InterfaceError("no interface is named \"\(text)\"")
        }
        guard !addresses.isEmpty else { throw InterfaceError("the interface \"\(text)\" has no address") }
    }

    /// Returns the source address for a connection to `destination`, or `nil` if the interface has no
    /// address of that family.
    ///
    /// Prefers a link-local source for a link-local destination, and a global source for any other.
    package func source(for destination: SocketEndpoint) -> SocketEndpoint? {
        let candidates = addresses.filter { $0.family == destination.family }
        return candidates.first { $0.isLinkLocal == destination.isLinkLocal } ?? candidates.first
    }

    /// Returns `destination`. If `destination` is link-local and has no scope, it is given the scope of this
    /// interface (RFC 4007, section 6).
    package func withScope(_ destination: SocketEndpoint) -> SocketEndpoint {
        destination.withScope(ifMissing: index)
    }

    private static let loopbackNames = ["localhost", "loopback"]

    /// The maximum length of the text: an IPv6 address with a zone, in brackets, and a port.
    private static let longest = "[]:65535".utf8.count + SocketEndpoint.longestLiteral

    private static func literals(_ hosts: [String], _ port: UInt16) -> [SocketEndpoint] {
        hosts.compactMap { SocketEndpoint(literal: $0, port: port) }
    }

    private static func sorted(_ addresses: [SocketEndpoint], _ port: UInt16) -> [SocketEndpoint] {
        let all = addresses.map { $0.withPort(port) }
        return all.filter { $0.family == .ipv4 } + all.filter { $0.family == .ipv6 }
    }
}

package struct InterfaceError: Error, Hashable, Sendable {
    package let message: String
    /// The error from the system call that failed, or `nil` if no system call failed.
    package let cause: SystemError?

    init(_ message: String) {
        self.message = message
        cause = nil
    }

    init(_ cause: SystemError) {
        message = "the network interfaces cannot be listed: \(cause)"
        self.cause = cause
    }
}

// MARK: - Parsing

extension LocalInterface {
    private static func split(_ text: String) throws(InterfaceError) -> (name: String, port: UInt16) {
        if text.hasPrefix("["), let end = text.firstIndex(of: "]") {
            let address = String(text[text.index(after: text.startIndex)..<end])
            guard SocketEndpoint(literal: address, port: 0)?.family == .ipv6 else {
                throw InterfaceError("the brackets in \"\(text)\" do not contain an IPv6 address")
            }
            let rest = text[text.index(after: end)...]
            if rest.isEmpty { return (address, 0) }
            guard rest.first == ":" else { throw InterfaceError("the text after the bracket in \"\(text)\" is not a port") }
            return (address, try port(rest.dropFirst(), of: text))
        }
        let colons = text.indices.filter { text[$0] == ":" }
        guard colons.count == 1 else { return (text, 0) }
        return (String(text[..<colons[0]]), try port(text[text.index(after: colons[0])...], of: text))
    }

    private static func port(_ digits: Substring, of text: String) throws(InterfaceError) -> UInt16 {
        guard digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let port = UInt16(digits) else {
            throw InterfaceError("the text after the colon in \"\(text)\" is not a port number")
        }
        return port
    }
}

// MARK: - The kernel's list

extension LocalInterface {
    private struct Entry {
        let name: String
        let index: UInt32
        /// `nil` if the interface has no address, or an address that is not IPv4 or IPv6.
        let address: SocketEndpoint?
        let mask: SocketEndpoint?
    }

    /// The name of the interface with the given IPv4 address, and the broadcast address of its network (RFC
    /// 919). `nil` if no interface has the address, or the network has only one or two addresses (RFC 3021).
    package static func broadcast(for address: SocketEndpoint) throws(InterfaceError) -> (name: String, SocketEndpoint)? {
        guard let entry = try list().first(where: { $0.address?.isSameHost(as: address) == true }),
            let host = entry.address?.ipv4Bytes, let mask = entry.mask?.ipv4Bytes, mask[3] < 0xFE
        else { return nil }
        let bytes = zip(host, mask).map { $0 | ~$1 }
        return SocketEndpoint(ipv4Bytes: bytes, port: address.port ?? 0).map { (entry.name, $0) }
    }

    /// - Parameter isOptional: Whether to return an empty list if the kernel refuses it.
    private static func list(isOptional: Bool) throws(InterfaceError) -> [Entry] {
        do throws(InterfaceError) {
            return try list()
        } catch {
            guard isOptional else { throw error }
            return []
        }
    }

    private static func list() throws(InterfaceError) -> [Entry] {
        var first: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&first) == 0 else { throw InterfaceError(SystemError("getifaddrs")) }
        defer { freeifaddrs(first) }
        var entries: [Entry] = []
        for entry in sequence(first: first, next: { $0?.pointee.ifa_next }).compactMap({ $0?.pointee }) {
            let name = String(cString: entry.ifa_name)
            entries.append(
                Entry(
                    name: name, index: try index(of: name), address: address(entry.ifa_addr),
                    mask: address(entry.ifa_netmask)))
        }
        return entries
    }

    /// Returns the kernel's index of an interface, or 0 if the interface no longer exists.
    private static func index(of name: String) throws(InterfaceError) -> UInt32 {
        let index = if_nametoindex(name)
        // The call opens a socket (if_nametoindex(3)). If that fails, a link-local address must not silently
        // lose its scope.
        guard index != 0 || errno == ENODEV || errno == ENXIO else { throw InterfaceError(SystemError("if_nametoindex")) }
        return index
    }

    /// Reads an address or mask, which is null for an interface without an address, such as a tunnel
    /// (getifaddrs(3)).
    private static func address(_ address: UnsafeMutablePointer<sockaddr>?) -> SocketEndpoint? {
        guard let address else { return nil }
        let length: Int
        switch CInt(address.pointee.sa_family) {
        case AF_INET: length = MemoryLayout<sockaddr_in>.size
        case AF_INET6: length = MemoryLayout<sockaddr_in6>.size
        default: return nil
        }
        return SocketEndpoint(UnsafeRawBufferPointer(start: address, count: length))
    }
}

// MARK: - Interfaces and addresses

extension SocketEndpoint {
    /// Whether this is an IPv6 address in `fe80::/10`, which identifies a host only together with an
    /// interface (RFC 4291, section 2.5.6).
    fileprivate var isLinkLocal: Bool {
        guard let bytes = ipv6Bytes else { return false }
        return bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
    }

    /// Adds `scope` to a link-local address without a scope. Returns any other address unchanged.
    fileprivate func withScope(ifMissing scope: UInt32) -> SocketEndpoint {
        isLinkLocal && self.scope == 0 ? withScope(scope) : self
    }

    /// Whether both have the same IP address, regardless of port and scope.
    fileprivate func isSameHost(as other: SocketEndpoint) -> Bool {
        switch (family, other.family) {
        case (.ipv4, .ipv4): ipv4Bytes == other.ipv4Bytes
        case (.ipv6, .ipv6): ipv6Bytes == other.ipv6Bytes
        default: false
        }
    }

    fileprivate var ipv4Bytes: [UInt8]? { family == .ipv4 ? bytes(from: Self.ipv4Offset, count: 4) : nil }
    private var ipv6Bytes: [UInt8]? { family == .ipv6 ? bytes(from: Self.ipv6Offset, count: 16) : nil }

    private func bytes(from offset: Int, count: Int) -> [UInt8] {
        withUnsafeBytes(of: storage) { Array($0[offset..<offset + count]) }
    }

    private static let ipv4Offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
    private static let ipv6Offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
}

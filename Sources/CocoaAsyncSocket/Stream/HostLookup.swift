internal import Dispatch
internal import SocketBuffers
internal import SocketCore

enum HostLookup {
    /// Removes trailing zero bytes. The original ignores them, because it passes a C string to
    /// getaddrinfo(3), and programs create such text from the buffers of inet_ntop(3). Text with a zero byte
    /// inside is rejected later.
    static func text(_ host: String) -> String {
        guard host.utf8.last == 0 else { return host }
        return String(decoding: host.utf8.reversed().drop { $0 == 0 }.reversed(), as: UTF8.self)
    }

    static func nonEmptyText(_ host: String) throws -> String {
        let host = text(host)
        guard !host.isEmpty else { throw GCDAsyncSocketError(.badParamError, InterfaceCheck.emptyHost) }
        return host
    }

    /// - Throws: A `ResolveError`.
    static func addresses(of host: String, port: UInt16) throws -> [SocketEndpoint] {
        let answer = Locked<Resolver.Answer?>(nil)
        let done = DispatchSemaphore(value: 0)
        _ = Resolver.system.resolve(HostQuery(host: text(host), port: port)) { result in
            answer.withLock { $0 = result }
            done.signal()
        }
        done.wait()
        return try answer.withLock { $0 }?.get() ?? []
    }
}

/// CocoaAsyncSocket's messages for interfaces that cannot be used.
enum InterfaceCheck {
    static let emptyHost = "Invalid host parameter (nil or \"\"). Should be a domain name or IP address string."
    static let unknown = "Unknown interface. Specify valid interface by name (e.g. \"en1\") or IP address."

    /// Returns `nil` if the interface has an address of an enabled IP version. A `nil` or empty name means
    /// all interfaces.
    static func complaint(about name: String?, _ isIPv4Enabled: Bool, _ isIPv6Enabled: Bool) -> String? {
        guard let name, !name.isEmpty else { return nil }
        guard let interface = try? LocalInterface(name) else { return unknown }
        let families = Set(interface.addresses.map(\.family))
        if !isIPv4Enabled, !families.contains(.ipv6) {
            return "IPv4 has been disabled and specified interface doesn't support IPv6."
        }
        if !isIPv6Enabled, !families.contains(.ipv4) {
            return "IPv6 has been disabled and specified interface doesn't support IPv4."
        }
        return nil
    }
}

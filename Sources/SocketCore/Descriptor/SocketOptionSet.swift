internal import Glibc

/// The protocol and options for new descriptors: the last value set for each option, in the order in which
/// the options were first set.
package struct SocketOptionSet: Sendable {
    private struct Entry {
        let name: String
        let value: any Sendable
        let isForUnboundOnly: Bool
        /// If the second argument is `true`, also applies the option to IPv4 on an IPv6 socket.
        let apply: @Sendable (SocketDescriptor, Bool) throws(SystemError) -> Void
        let isSet: @Sendable (SocketDescriptor) -> Bool
    }

    private var entries: [Entry] = []
    /// Whether to use Multipath TCP if the kernel supports it. Otherwise plain TCP is used.
    package var usesMultipathTCP = false

    package init() {}

    package var isEmpty: Bool { entries.isEmpty }

    package mutating func set<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(SystemError) {
        guard option.encode(value) != nil else { throw SystemError("setsockopt(\(option.name))", errno: EINVAL) }
        let entry = Entry(
            name: option.name, value: value, isForUnboundOnly: option.scope == .unbound,
            apply: { (descriptor, isForBoth) throws(SystemError) in try descriptor.set(option, to: value, alsoForIPv4: isForBoth)
            },
            isSet: { $0.has(option, value) })
        if let index = entries.firstIndex(where: { $0.name == option.name }) {
            entries[index] = entry
        } else {
            entries.append(entry)
        }
    }

    package func value<Value>(of option: SocketOptionKey<Value>) -> Value? {
        guard let entry = entries.first(where: { $0.name == option.name }) else { return nil }
        return entry.value as? Value
    }

    /// Sets all options. On a dual-stack socket, sets them for both IP versions.
    func apply(toNew descriptor: SocketDescriptor, alsoForIPv4 isForBoth: Bool = false) throws(SystemError) {
        for entry in entries { try entry.apply(descriptor, isForBoth) }
    }

    /// Returns the options that an accepted descriptor did not inherit from its listener. Only these are
    /// set, because setting an option again may require a privilege that the process has since dropped.
    package func notInherited(by descriptor: SocketDescriptor) -> SocketOptionSet {
        guard !entries.isEmpty else { return self }
        var missing = self
        missing.entries.removeAll { $0.isSet(descriptor) }
        return missing
    }

    package func apply(toConnected descriptor: SocketDescriptor) throws(SystemError) {
        try apply(toBound: descriptor)
    }

    /// Sets the options that take effect on a bound socket.
    func apply(toBound descriptor: SocketDescriptor, alsoForIPv4 isForBoth: Bool = false) throws(SystemError) {
        for entry in entries where !entry.isForUnboundOnly { try entry.apply(descriptor, isForBoth) }
    }
}

extension SocketDescriptor {
    convenience init(streamOf family: SocketEndpoint.Family, options: SocketOptionSet) throws(SystemError) {
        try self.init(streamOf: family, wantsMultipath: options.usesMultipathTCP)
        try options.apply(toNew: self)
    }

    /// Sets one option.
    ///
    /// - Parameter isForBoth: Whether an option with a separate key for each IP version is also set for IPv4
    ///   on an IPv6 socket.
    package func set<Value>(
        _ option: SocketOptionKey<Value>, to value: Value, alsoForIPv4 isForBoth: Bool = false
    ) throws(SystemError) {
        let call = "setsockopt(\(option.name))"
        guard let bytes = option.encode(value) else { throw SystemError(call, errno: EINVAL) }
        try set(try key(of: option, call), to: bytes, call)
        if isForBoth, case .byFamily(let ipv4, _) = option.keys { try set(ipv4, to: bytes, call) }
    }

    private func set<Value>(_ key: SocketOptionKey<Value>.Key, to bytes: [UInt8], _ call: String) throws(SystemError) {
        guard setsockopt(rawValue, key.level, key.option, bytes, socklen_t(bytes.count)) == 0 else { throw SystemError(call) }
    }

    package func value<Value>(of option: SocketOptionKey<Value>) throws(SystemError) -> Value {
        let call = "getsockopt(\(option.name))"
        let key = try key(of: option, call)
        var bytes = [UInt8](repeating: 0, count: 32)
        var length = socklen_t(bytes.count)
        guard getsockopt(rawValue, key.level, key.option, &bytes, &length) == 0 else { throw SystemError(call) }
        guard let value = option.decode(Array(bytes.prefix(Int(length)))) else { throw SystemError(call, errno: EINVAL) }
        return value
    }

    fileprivate func has<Value>(_ option: SocketOptionKey<Value>, _ value: Value) -> Bool {
        do throws(SystemError) {
            return option.encode(try self.value(of: option)) == option.encode(value)
        } catch {
            return false
        }
    }

    private func key<Value>(of option: SocketOptionKey<Value>, _ call: String) throws(SystemError) -> SocketOptionKey<Value>.Key {
        switch option.keys {
        case .one(let key): return key
        case .byFamily(let ipv4, let ipv6):
            var domain: CInt = 0
            var length = socklen_t(MemoryLayout<CInt>.size)
            guard getsockopt(rawValue, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 else { throw SystemError(call) }
            switch domain {
            case AF_INET: return ipv4
            case AF_INET6: return ipv6
            default: throw SystemError(call, errno: EOPNOTSUPP)
            }
        }
    }
}

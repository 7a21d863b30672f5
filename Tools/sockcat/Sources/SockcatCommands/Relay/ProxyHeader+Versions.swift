internal import AsyncSockets

extension ProxyHeader {
    /// Returns what a version can describe of this header.
    ///
    /// Version 1 describes TCP over IPv4 and IPv6, without fields. For other connections, a sender must send
    /// `PROXY UNKNOWN` (PROXY protocol, section 2.1), because without a header the target would reject the
    /// connection. The fields are omitted, as HAProxy does. The library never omits anything silently, so the
    /// relay does it here.
    func reduced(to version: Version) -> ProxyHeader {
        guard version == .version1 else { return self }
        guard let source, let destination, transport == .stream, [.ipv4, .ipv6].contains(source.family) else { return .unknown }
        return ProxyHeader(source: source, destination: destination)
    }
}

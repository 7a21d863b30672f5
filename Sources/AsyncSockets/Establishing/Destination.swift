internal import SocketCore

/// The target of a connection and how to reach it, as requested by the caller. Later changes to the socket's
/// configuration have no effect on it.
struct Destination: Sendable {
    enum Target: Sendable {
        case host(String, port: UInt16)
        case address(SocketEndpoint)

        /// `nil` for a Unix-domain address.
        var hostAndPort: (host: String, port: UInt16)? {
            switch self {
            case .host(let host, let port): (host, port)
            case .address(let address): address.host.flatMap { host in address.port.map { (host, $0) } }
            }
        }
    }

    let target: Target
    /// The tunnel, if a proxy is used. `target` is then the proxy.
    var tunnel: Tunnel?
    let policy: RoutePolicy
    let resolver: Resolver

    /// The final host and port, even if a proxy is used. TLS sessions are stored under this key.
    var endpoint: String {
        if let tunnel { return "\(tunnel.host.lowercased()) \(tunnel.port)" }
        switch target {
        case .host(let host, let port): return "\(host.lowercased()) \(port)"
        case .address(let address): return "\(address)"
        }
    }

    /// The final host, even if a proxy is used. `nil` for a Unix-domain address.
    var host: String? { tunnel?.host ?? target.hostAndPort?.host }

    /// The name of `target` in error messages.
    var name: String {
        switch target {
        case .host(let host, _): host
        case .address(let address): "\(address)"
        }
    }
}

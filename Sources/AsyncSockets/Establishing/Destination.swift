internal import SocketCore

/// Where a connection goes, and how, as the caller asked: later changes of the socket's configuration do not
/// affect it.
struct Destination: Sendable {
    enum Target: Sendable {
        case host(String, port: UInt16)
        case address(SocketAddress)

        /// Nil in the Unix domain.
        var hostAndPort: (host: String, port: UInt16)? {
            switch self {
            case .host(let host, let port): (host, port)
            case .address(let address): address.host.flatMap { host in address.port.map { (host, $0) } }
            }
        }
    }

    let target: Target
    /// Leads through a proxy, which is then the target; nil: no proxy.
    var tunnel: Tunnel?
    let policy: RoutePolicy
    let resolver: Resolver

    /// The host and port, behind a proxy if there is one. Sessions of TLS are kept for it.
    var endpoint: String {
        if let tunnel { return "\(tunnel.host.lowercased()) \(tunnel.port)" }
        switch target {
        case .host(let host, let port): return "\(host.lowercased()) \(port)"
        case .address(let address): return "\(address)"
        }
    }

    /// The host, behind a proxy if there is one; nil for a path.
    var host: String? { tunnel?.host ?? target.hostAndPort?.host }

    /// The destination in error messages.
    var name: String {
        switch target {
        case .host(let host, _): host
        case .address(let address): "\(address)"
        }
    }
}

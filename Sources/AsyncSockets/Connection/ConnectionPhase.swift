internal import SocketCore

/// What a connection is doing, TLS apart.
enum ConnectionPhase {
    /// Made, and not told yet what to do.
    case idle
    /// The descriptor of the socket's connection before this one has yet to be closed: it may have the port
    /// that this one is to have.
    indirect case waiting(Destination)
    /// The host's addresses are being looked up; nil: the answer is on its way.
    indirect case resolving(Destination, Resolver.Lookup?)
    /// The addresses are being tried.
    indirect case connecting(Connector, Destination)
    /// The connection to a proxy stands, and the proxy is being asked for the one that was wanted.
    indirect case negotiating(SocketDescriptor, Tunnel)
    /// It stands (`kConnected`).
    case connected(SocketDescriptor)
    /// It has ended; nothing changes any more.
    case closed

    /// When something has to be done about connecting, apart from the limit on the whole.
    var deadline: Deadline? {
        if case .connecting(let connector, _) = self { connector.deadline } else { nil }
    }
}

/// Where a connection goes, and how, as it was asked for: later changes of the socket's configuration do not
/// concern it.
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
    /// Through a proxy, which is the target then; nil: straight there.
    var tunnel: Tunnel?
    let policy: RoutePolicy
    let resolver: Resolver

    /// For messages.
    var name: String {
        switch target {
        case .host(let host, _): host
        case .address(let address): "\(address)"
        }
    }
}

/// What a connection has to be done with before a certain time, besides reads and writes; never two at once.
///
/// A class, since most of the time there is none: an idle connection keeps no room for it.
final class PhaseClock {
    enum Limit {
        case connect
        case handshake(thenTrust: Double)
        /// The delegate's verdict; the handshake's clock stands still meanwhile.
        case trust(pausing: PhaseClock)
    }

    let limit: Limit
    /// All the time there is, pauses apart.
    let seconds: Double
    private(set) var deadline: Deadline?
    private var left: Double

    init(_ limit: Limit, seconds: Double, at now: Deadline = .now) {
        self.limit = limit
        self.seconds = seconds
        left = seconds
        deadline = Deadline(after: seconds, from: now)
    }

    /// The handshake's: stands still from now on. Returns the clock of the verdict.
    func pauseForTrust(at now: Deadline = .now) -> PhaseClock? {
        guard case .handshake(let trustSeconds) = limit else { return nil }
        if let deadline { left = max(deadline.seconds(since: now), 0) }
        deadline = nil
        return PhaseClock(.trust(pausing: self), seconds: trustSeconds, at: now)
    }

    /// The verdict's: returns the handshake's, which goes on with what was left when it stopped.
    func resumeHandshake(at now: Deadline = .now) -> PhaseClock? {
        guard case .trust(let handshake) = limit else { return nil }
        handshake.deadline = Deadline(after: handshake.left, from: now)
        return handshake
    }
}

internal import SocketCore

/// What a connection is doing, TLS apart.
enum ConnectionPhase {
    /// Made, and not told yet what to do.
    case idle
    /// The host's addresses are being looked up.
    case resolving(Destination)
    /// One address is being tried.
    case connecting(SocketDescriptor, to: SocketAddress, ConnectAttempts, Destination)
    /// The connection to a proxy stands, and the proxy is being asked for the one that was wanted.
    case negotiating(SocketDescriptor, Tunnel)
    /// It stands (`kConnected`).
    case connected(SocketDescriptor)
    /// It has ended; nothing changes any more.
    case closed

    /// Where a connection goes.
    struct Destination: Sendable {
        let host: String
        let port: UInt16
    }
}

/// What a connection has to be done with before a certain time, besides reads and writes; never two at once.
struct PhaseClock {
    enum Limit {
        case connect
        case handshake
        case trust
    }

    let limit: Limit
    let seconds: Double
    let deadline: Deadline?

    init(_ limit: Limit, seconds: Double) {
        self.limit = limit
        self.seconds = seconds
        deadline = Deadline(after: seconds)
    }
}

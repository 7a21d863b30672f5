internal import SocketCore

/// What a connection is doing, TLS apart.
enum ConnectionPhase {
    /// Made, and not told yet what to do.
    case idle
    /// The host's addresses are being looked up.
    case resolving(Destination)
    /// One address is being tried.
    case connecting(SocketDescriptor, to: SocketAddress, ConnectAttempts, Destination)
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
    /// All the time there is, pauses apart.
    let seconds: Double
    private(set) var deadline: Deadline?
    private var left: Double

    init(_ limit: Limit, seconds: Double) {
        self.limit = limit
        self.seconds = seconds
        left = seconds
        deadline = Deadline(after: seconds)
    }

    mutating func stop() {
        left = max(deadline?.seconds(since: .now) ?? left, 0)
        deadline = nil
    }

    /// Goes on with what was left when it stopped.
    mutating func goOn() {
        deadline = Deadline(after: left)
    }
}

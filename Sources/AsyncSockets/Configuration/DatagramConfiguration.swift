internal import Logging
internal import SocketCore

/// How a UDP socket behaves, chosen by its user: see `SocketConfiguration`.
struct DatagramConfiguration: Sendable {
    typealias Shared = CopyOnWrite<DatagramConfiguration>

    /// The first configuration of a socket.
    static let initial = Shared(DatagramConfiguration())

    /// Grows with each change: of two that overtake each other, the later one wins.
    var version = 0
    var isIPv4Enabled = true
    var isIPv6Enabled = true
    /// Nil: the resolver's order (`setIPVersionNeutral`).
    var preferredFamily: SocketAddress.Family?
    var resolver = Resolver.system
    var maximumReceiveSize = DatagramReceiver.largestSize
    var receivesTimestamps = false
    /// The most memory for datagrams that the delegate has not had yet.
    var maximumPendingReceiveBytes = ByteLimit.mebibytes(1)
    /// The most bytes that may wait to be sent.
    var maximumPendingSendBytes = ByteLimit.mebibytes(4)
    var sendHighWaterMark: Int?
    var rateLimit: DatagramRateLimit?
    /// The most bytes of a datagram of DTLS; nil: what the kernel knows of the path.
    var maximumDatagramSize: Int?
    /// When the messages of a handshake are sent again for the first time.
    var firstRetransmission = Duration.seconds(1)
    /// The logger; nil: the library's.
    var logger: Logger?
    var observer: (any SocketObserver)?

    /// The extra services of the kernel. Datagrams of all sizes have a slot of the largest size, which then
    /// takes several of one sender.
    var reception: DatagramReception {
        var reception: DatagramReception = maximumReceiveSize == DatagramReceiver.largestSize ? .coalescing : []
        if receivesTimestamps { reception.insert(.timestamps) }
        return reception
    }

    var enabledFamilies: AddressFamilies {
        AddressFamilies((isIPv4Enabled ? [.ipv4] : []) + (isIPv6Enabled ? [.ipv6] : []))
    }

    func isEnabled(_ family: SocketAddress.Family) -> Bool {
        switch family {
        case .ipv4: isIPv4Enabled
        case .ipv6: isIPv6Enabled
        case .unix, .virtualMachine: false
        }
    }

    /// The order in which the addresses of a host are tried.
    func order(_ addresses: [SocketAddress]) -> [SocketAddress] {
        preferredFamily.map { HappyEyeballs.order(addresses, preferring: $0) } ?? addresses
    }

    /// - Throws: `.badConfiguration` when both are disabled.
    func enabledFamilies(_ operation: String) throws(AsyncSocketError) -> AddressFamilies {
        try AddressFamilies(isIPv4Enabled: isIPv4Enabled, isIPv6Enabled: isIPv6Enabled, operation)
    }
}

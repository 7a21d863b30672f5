internal import Logging
internal import SocketCore

/// How a UDP socket behaves, chosen by its user: see `SocketConfiguration`.
struct DatagramConfiguration: Sendable {
    typealias Shared = CopyOnWrite<DatagramConfiguration>

    static let initial = Shared(DatagramConfiguration())

    /// Incremented with each change, so that the later of two changes wins if they arrive out of order.
    var version = 0
    var isIPv4Enabled = true
    var isIPv6Enabled = true
    /// `nil` for the resolver's order (`setIPVersionNeutral`).
    var preferredFamily: SocketEndpoint.Family?
    var resolver = Resolver.system
    var maximumReceiveSize = DatagramReceiver.largestSize
    var receivesTimestamps = false
    /// The maximum memory for datagrams that have not been delivered to the delegate.
    var maximumPendingReceiveBytes = 1 << 20
    var maximumPendingSendBytes = 4 << 20
    var sendHighWaterMark: Int?
    /// The largest datagram that may be sent, or `nil` for the limit of UDP.
    var maximumSendLength: Int?
    var rateLimit: SourceRateLimit?
    /// The maximum size of a DTLS datagram, or `nil` to use the path MTU known to the kernel.
    var maximumDatagramSize: Int?
    /// Whether a DTLS handshake fails when the network reports an undelivered datagram.
    var failsHandshakeOnDeliveryFailure = false
    /// The delay before the messages of a handshake are retransmitted for the first time.
    var firstRetransmission = Duration.seconds(1)
    /// `nil` for the library's logger.
    var logger: Logger?
    var observer: (any SocketObserver)?

    /// The kernel features to enable. With receive buffers of the largest size, the kernel may deliver
    /// several datagrams from one sender in a single buffer.
    var reception: DatagramReception {
        var reception: DatagramReception = maximumReceiveSize == DatagramReceiver.largestSize ? .coalescing : []
        if receivesTimestamps { reception.insert(.timestamps) }
        return reception
    }

    var enabledFamilies: AddressFamilies {
        AddressFamilies((isIPv4Enabled ? [.ipv4] : []) + (isIPv6Enabled ? [.ipv6] : []))
    }

    func isEnabled(_ family: SocketEndpoint.Family) -> Bool {
        switch family {
        case .ipv4: isIPv4Enabled
        case .ipv6: isIPv6Enabled
        case .unix, .vsock: false
        }
    }

    func order(_ addresses: [SocketEndpoint]) -> [SocketEndpoint] {
        preferredFamily.map { HappyEyeballs.order(addresses, preferring: $0) } ?? addresses
    }

    /// - Throws: `.badConfiguration` if both families are disabled.
    func enabledFamilies(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> AddressFamilies {
        try AddressFamilies(isIPv4Enabled: isIPv4Enabled, isIPv6Enabled: isIPv6Enabled, operation)
    }
}

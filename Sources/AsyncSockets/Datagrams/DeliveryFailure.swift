internal import SocketBuffers
public import SocketCore

/// A report from the network (ICMP) that a sent datagram was not delivered.
///
/// Usually no program is using the destination port. See `AsyncUDPSocket.deliveryFailures()`.
public struct DeliveryFailure: Sendable {
    /// The destination of the datagram, or `nil` if the kernel no longer knows it.
    public let address: SocketEndpoint?
    /// The reason, with its `errno`.
    public let error: AsyncSocketError
}

/// The consumer of one `deliveryFailures()` stream.
final class DeliveryFailureReader: Sendable {
    /// The maximum number of unread reports.
    static let limit = 64
    private let continuation: AsyncStream<DeliveryFailure>.Continuation

    init(_ continuation: AsyncStream<DeliveryFailure>.Continuation) {
        self.continuation = continuation
    }

    func report(_ failure: DeliveryFailure) { continuation.yield(failure) }

    func finish() { continuation.finish() }
}

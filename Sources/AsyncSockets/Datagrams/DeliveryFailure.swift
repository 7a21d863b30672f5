internal import SocketBuffers
public import SocketCore

/// A datagram that had left did not arrive, as a router or the peer's machine reports (ICMP): mostly, no
/// program has the port. See `AsyncUDPSocket.deliveryFailures()`.
public struct DeliveryFailure: Sendable {
    /// Where it was sent to; nil when the kernel has lost that.
    public let address: SocketAddress?
    /// Why, with its `errno`.
    public let error: AsyncSocketError
}

/// A sequence of `deliveryFailures()`.
final class DeliveryFailureReader: Sendable {
    /// How many reports wait.
    static let limit = 64
    private let continuation: AsyncStream<DeliveryFailure>.Continuation

    init(_ continuation: AsyncStream<DeliveryFailure>.Continuation) {
        self.continuation = continuation
    }

    func report(_ failure: DeliveryFailure) { continuation.yield(failure) }

    func finish() { continuation.finish() }
}

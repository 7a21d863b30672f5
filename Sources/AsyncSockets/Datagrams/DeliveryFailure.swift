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

extension AsyncUDPSocket {
    /// The reports of datagrams that had left and did not arrive, from this call on, until the socket is
    /// closed or the task is cancelled. A delegate gets them in `udpSocket(_:didFailToReach:dueToError:)`.
    ///
    /// ```swift
    /// for await failure in try socket.deliveryFailures() {
    ///     print(failure.address?.description ?? "somewhere", failure.error)
    /// }
    /// ```
    ///
    /// Most losses are not reported, and anyone on the way can forge a report. So `send`, `receive` and
    /// `datagrams` go on after one, and you decide what it means. The oldest 64 reports wait for a task that is
    /// behind; the rest is dropped.
    ///
    /// - Throws: `.badConfiguration` when the socket is neither bound nor connected, and otherwise why it has
    ///   closed.
    public func deliveryFailures() throws(AsyncSocketError) -> AsyncStream<DeliveryFailure> {
        let connection = try openConnection("deliveryFailures")
        let (failures, continuation) = AsyncStream.makeStream(
            of: DeliveryFailure.self, bufferingPolicy: .bufferingOldest(DeliveryFailureReader.limit))
        let reader = DeliveryFailureReader(continuation)
        continuation.onTermination = { [weak connection, weak reader] _ in
            if let connection, let reader { connection.post(.reportFailures(to: reader, false)) }
        }
        connection.post(.reportFailures(to: reader, true))
        return failures
    }
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

internal import SocketBuffers
internal import SocketCore

/// A handler of events that concern ports.
protocol PortHandler: AnyObject, Sendable {
    /// - Parameter registration: The registration of the ports.
    func handle(_ events: LoopEvents, of ports: [DatagramPort], as registration: @autoclosure () -> LoopRegistration?)
}

/// A descriptor of a `DatagramListener`, with the code that receives from it and replies to strangers.
/// Confined to the loop.
final class DatagramPort {
    let descriptor: DatagramDescriptor
    /// The descriptor for replies: the same one, or the listener's own if this port belongs to
    /// `GroupReceivers`.
    let replyDescriptor: DatagramDescriptor
    let receiver: DatagramReceiver
    let sender: DatagramSender
    private let bound: InternetAddress?
    let replies = PreBuffer()
    @exclusivity(unchecked) var addresses: [(count: Int, peer: InternetAddress, source: DatagramSource?)] = []
    @exclusivity(unchecked) var isReady = true
    /// Why receiving is paused. Shared with the peers, because a timeout during the pause is not their fault.
    let denial: Locked<SystemError?>
    @exclusivity(unchecked) private var isDenied = false
    @exclusivity(unchecked) private var hasPaused = false
    /// When to receive again. Set if no event will report the next datagrams.
    @exclusivity(unchecked) var retry: Deadline?

    /// Creates a port with the receiver and the sender of another one.
    init(_ descriptor: DatagramDescriptor, like other: DatagramPort) {
        self.descriptor = descriptor
        (replyDescriptor, receiver, sender, bound) = (other.replyDescriptor, other.receiver, other.sender, other.bound)
        denial = other.denial
    }

    init(
        _ descriptor: DatagramDescriptor, replyingThrough own: DatagramDescriptor? = nil, maximumSize: Int,
        _ reception: DatagramReception
    ) {
        self.descriptor = descriptor
        replyDescriptor = own ?? descriptor
        denial = Locked(nil)
        // The process that opened an inherited socket may have enabled it.
        let coalesces = descriptor.coalesces ?? reception.contains(.coalescing)
        receiver = DatagramReceiver(maximumSize: maximumSize, coalesces: coalesces)
        receiver.localPort = descriptor.localAddress?.port ?? 0
        sender = DatagramSender(for: replyDescriptor)
        bound = replyDescriptor.localAddress.map { InternetAddress($0) }
    }

    func note(_ denial: SystemError?) {
        // Fast path: receiving works, as it did the last time.
        guard denial != nil || isDenied else { return }
        isDenied = denial != nil
        self.denial.withLock { $0 = denial }
    }

    /// Returns the source address to set in replies to a datagram, or `nil` if the kernel's default is
    /// already right.
    func source(for arrival: DatagramArrival) -> DatagramSource? {
        guard let source = arrival.replySource, source.interfaceIndex == 0, let address = source.address, let bound,
            bound.hasHost(of: address)
        else { return arrival.replySource }
        return nil
    }

    // MARK: - Pausing

    func pause(for seconds: Double) {
        (isReady, hasPaused) = (false, true)
        retry = Deadline(after: seconds)
    }

    /// Whether `pause(for:)` was called since the last call of this method.
    func takePause() -> Bool {
        guard hasPaused else { return false }
        hasPaused = false
        return true
    }

    func retryIfDue() {
        guard let retry, retry <= .now else { return }
        self.retry = nil
        isReady = true
    }

    // MARK: - Errors and replies

    /// Takes errors for sent datagrams from the kernel's queue. Bounded, because other hosts control their
    /// number.
    func takeErrors() -> [DatagramError] {
        var taken: [DatagramError] = []
        for _ in 0..<Self.errorRounds {
            let (errors, isDrained) = descriptor.takeErrors()
            taken += errors
            if isDrained { break }
        }
        return taken
    }

    private static let errorRounds = 8

    /// Sends the requests for cookies. If the kernel has no room for them, they are lost, and the clients
    /// retransmit.
    func sendReplies() {
        guard !addresses.isEmpty else { return }
        var start = 0
        let datagrams = addresses.map { reply in
            defer { start += reply.count }
            let bytes = UnsafeRawBufferPointer(rebasing: replies.readableBytes[start..<start + reply.count])
            return OutgoingDatagram(bytes, to: reply.peer, from: reply.source)
        }
        _ = datagrams.withUnsafeBufferPointer { sender.send($0) }
        replies.reset()
        addresses.removeAll(keepingCapacity: true)
    }
}

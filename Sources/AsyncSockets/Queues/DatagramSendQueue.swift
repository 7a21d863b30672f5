internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

enum DatagramTarget: Hashable, Sendable {
    /// The peer of a connected socket.
    case peer
    case address(InternetAddress, from: DatagramSource? = nil)
    /// A host name to resolve.
    indirect case host(HostQuery)

    var query: HostQuery? {
        if case .host(let query) = self { query } else { nil }
    }
}

/// A queued datagram (`GCDAsyncUdpSendPacket`).
struct DatagramPacket: WaitingPacket, Sendable {
    /// The decision of the program's filter.
    enum Filtering: Sendable {
        case unasked
        /// The filter was called and has not decided yet.
        case asked
        case accepted
        case dropped
    }

    let data: Data
    fileprivate(set) var target: DatagramTarget
    let timeout: Double
    let completion: Completion<Void>
    var filtering = Filtering.unasked
    /// Identifies the datagram within its queue, for a filter that decides later.
    fileprivate(set) var number: UInt64 = 0

    init(_ data: Data, to target: DatagramTarget, timeout: Double, completion: Completion<Void>) {
        self.data = data
        self.target = target
        self.timeout = timeout
        self.completion = completion
    }

    /// Includes `overhead`, because even an empty datagram uses memory.
    fileprivate var cost: Int { data.count + DatagramSendQueue.overhead }
}

/// The datagrams to be sent, in order, with their timers and the fill level of the queue.
///
/// A datagram is sent as a whole or not at all.
final class DatagramSendQueue {
    // Private: another module would check the exclusivity of each access at run time.
    @exclusivity(unchecked) private var packets = WaitingPackets<DatagramPacket>()
    @exclusivity(unchecked) private var waiting = 0
    @exclusivity(unchecked) private var lastNumber: UInt64 = 0
    @exclusivity(unchecked) private var highWater = HighWaterMark()

    /// The number of bytes that each datagram adds to the total, in addition to its data.
    static let overhead = 64

    init() {}

    var isEmpty: Bool { packets.isEmpty }
    /// The number of queued bytes, including `overhead` for each datagram.
    var waitingByteCount: Int { waiting }

    func append(_ packet: consuming DatagramPacket) {
        lastNumber += 1
        packet.number = lastNumber
        waiting += packet.cost
        packets.append(consume packet)
    }

    /// Returns the datagram `offset` places after the front, or `nil` at the marker or past the end. Valid
    /// until the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<DatagramPacket>? { packets.packet(at: offset) }

    /// Returns the datagram with this number, or `nil` if it is no longer queued. Valid until the queue
    /// changes.
    func packet(numbered number: UInt64) -> UnsafeMutablePointer<DatagramPacket>? {
        packets.firstIndex { $0.pointee.number == number }.flatMap { packets.anyPacket(at: $0) }
    }

    /// Redirects datagrams for the peer of a connected socket to `peer`.
    func retarget(to peer: InternetAddress) {
        packets.forEach { packet in
            if packet.pointee.target == .peer { packet.pointee.target = .address(peer) }
        }
    }

    // MARK: - The marker

    /// Whether all datagrams before the marker have been sent.
    var isAtStartTLS: Bool { packets.isAtStartTLS }

    func appendStartTLS() { packets.appendStartTLS() }

    func removeStartTLS() { packets.removeStartTLS() }

    // MARK: - Removing

    /// Removes the marker and the oldest datagram, even if it is after the marker. Returns `nil` if the queue
    /// is empty.
    func drop() -> DatagramPacket? {
        let packet = packets.drop()
        if let packet { waiting -= packet.cost }
        return packet
    }

    /// Removes the oldest datagram before the marker.
    func removeFront() -> DatagramPacket? {
        guard let packet = packets.takeFront() else { return nil }
        waiting -= packet.cost
        return packet
    }

    func cancel(_ waiter: AnyObject) -> DatagramPacket? {
        guard let (index, found) = packets.find(waiter) else { return nil }
        let packet = found.pointee
        waiting -= packet.cost
        packets.remove(at: index)
        return packet
    }

    // MARK: - Fill level

    var isAboveHighWater: Bool { highWater.isAbove }

    func takeHighWater(_ mark: Int?) -> Int? { highWater.takeHigh(waiting, mark) }

    func takeLowWater(_ mark: Int?) -> Int? { highWater.takeLow(waiting, mark) }

    /// Whether `count` more bytes would exceed `limit`. A single datagram is always allowed.
    func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        waiting > 0 && count + Self.overhead > limit - waiting
    }

    // MARK: - Time

    func startClock() { packets.startClock() }

    var hasDeadline: Bool { packets.hasDeadline }

    var deadline: Deadline? { packets.deadline }

    func lateWaiter(at now: Deadline) -> (any OperationWaiter<Void>)? { packets.lateWaiter(at: now) }

    /// Whether the oldest datagram has timed out. Returns `true` only once.
    func isFrontLate(at now: Deadline) -> Bool {
        guard let front = packets.front else { return false }
        let progress = OperationProgress(tag: front.pointee.completion.tag, bytesDone: 0, total: front.pointee.data.count)
        return packets.takeLate(at: now, progress) != nil
    }
}

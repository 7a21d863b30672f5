internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// Where a datagram is to be sent.
enum DatagramTarget: Hashable, Sendable {
    /// The peer of a connected socket.
    case peer
    case address(InternetAddress, from: DatagramSource? = nil)
    /// A host that is looked up.
    indirect case host(HostQuery)

    var query: HostQuery? {
        if case .host(let query) = self { query } else { nil }
    }
}

/// One queued datagram (`GCDAsyncUdpSendPacket`).
struct DatagramPacket: WaitingPacket, Sendable {
    /// The verdict of the program's filter.
    enum Filtering: Sendable {
        case unasked
        /// The answer comes later.
        case asked
        case accepted
        case dropped
    }

    let data: Data
    fileprivate(set) var target: DatagramTarget
    let timeout: Double
    let completion: Completion<Void>
    var filtering = Filtering.unasked
    /// Tells it from all others of its queue, for a filter that answers later.
    fileprivate(set) var number: UInt64 = 0

    init(_ data: Data, to target: DatagramTarget, timeout: Double, completion: Completion<Void>) {
        self.data = data
        self.target = target
        self.timeout = timeout
        self.completion = completion
    }

    /// One without bytes takes memory too.
    fileprivate var cost: Int { data.count + DatagramSendQueue.overhead }
}

/// The datagrams that wait to be sent, in order, with their clocks, and how full the queue is.
///
/// A datagram leaves as a whole, so it is never sent in part.
final class DatagramSendQueue {
    // Private: another module would check the exclusivity of each access at run time.
    @exclusivity(unchecked) private var packets = WaitingPackets<DatagramPacket>()
    @exclusivity(unchecked) private var waiting = 0
    @exclusivity(unchecked) private var lastNumber: UInt64 = 0
    @exclusivity(unchecked) private var highWater = HighWaterMark()

    /// The share of a datagram in the limit, beside its bytes.
    static let overhead = 64

    init() {}

    var isEmpty: Bool { packets.isEmpty }
    /// The bytes that wait, and `overhead` for each datagram.
    var waitingByteCount: Int { waiting }

    func append(_ packet: consuming DatagramPacket) {
        lastNumber += 1
        packet.number = lastNumber
        waiting += packet.cost
        packets.append(consume packet)
    }

    /// The datagram that is `offset` places behind the front; nil at the marker or past the end. Valid until
    /// the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<DatagramPacket>? { packets.packet(at: offset) }

    /// The one with that number; nil when it waits no more. Valid until the queue changes.
    func packet(numbered number: UInt64) -> UnsafeMutablePointer<DatagramPacket>? {
        packets.firstIndex { $0.pointee.number == number }.flatMap { packets.anyPacket(at: $0) }
    }

    /// Those for the peer of a connected socket go to that address from now on.
    func retarget(to peer: InternetAddress) {
        packets.forEach { packet in
            if packet.pointee.target == .peer { packet.pointee.target = .address(peer) }
        }
    }

    // MARK: - The marker

    /// True when everything before the marker has left.
    var isAtStartTLS: Bool { packets.isAtStartTLS }

    func appendStartTLS() { packets.appendStartTLS() }

    func removeStartTLS() { packets.removeStartTLS() }

    // MARK: - Leaving

    /// Takes out the oldest, even from behind the marker; nil when the queue is empty, which is then as new.
    func drop() -> DatagramPacket? {
        let packet = packets.drop()
        if let packet { waiting -= packet.cost }
        return packet
    }

    /// Takes out the oldest before the marker.
    func removeFront() -> DatagramPacket? {
        guard let packet = packets.takeFront() else { return nil }
        waiting -= packet.cost
        return packet
    }

    /// Takes out the datagram of `waiter`; nil when it waits no more.
    func cancel(_ waiter: AnyObject) -> DatagramPacket? {
        guard let (index, found) = packets.find(waiter) else { return nil }
        let packet = found.pointee
        waiting -= packet.cost
        packets.remove(at: index)
        return packet
    }

    // MARK: - How full

    var isAboveHighWater: Bool { highWater.isAbove }

    /// The bytes that wait, once, when they have reached `mark`.
    func takeHighWater(_ mark: Int?) -> Int? { highWater.takeHigh(waiting, mark) }

    /// The bytes that wait, once, when they are down to half of `mark`.
    func takeLowWater(_ mark: Int?) -> Int? { highWater.takeLow(waiting, mark) }

    /// True when so many bytes more would be too many. One datagram alone is never too much.
    func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        waiting > 0 && count + Self.overhead > limit - waiting
    }

    // MARK: - Time

    /// Starts the clock of the oldest, unless it runs.
    func startClock() { packets.startClock() }

    var hasDeadline: Bool { packets.hasDeadline }

    /// When the oldest has taken too long, or a waiter's time may end.
    var deadline: Deadline? { packets.deadline }

    /// A waiter whose time has come; nil when none is left.
    func lateWaiter(at now: Deadline) -> (any OperationWaiter<Void>)? { packets.lateWaiter(at: now) }

    /// True when the oldest has taken too long.
    func isFrontLate(at now: Deadline) -> Bool {
        guard let front = packets.front else { return false }
        let progress = OperationProgress(tag: front.pointee.completion.tag, bytesDone: 0, total: front.pointee.data.count)
        return packets.takeLate(at: now, progress) != nil
    }
}

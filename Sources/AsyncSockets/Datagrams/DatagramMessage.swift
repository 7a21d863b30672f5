internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// An event for the delegate of a UDP socket. A plain value, like `DelegateEvent`.
enum DatagramEvent: SocketEvent {
    indirect case didConnect(SocketEndpoint)
    indirect case didNotConnect(AsyncSocketError)
    case didSend(tag: Int)
    indirect case didNotSend(tag: Int, AsyncSocketError)
    case highWater(Int)
    case lowWater(Int)
    case didReceive(DatagramArrived)
    indirect case didFailToReach(SocketEndpoint?, AsyncSocketError, ReceiveCredit)
    indirect case didReceiveTrust(PeerTrust, answer: @Sendable (Bool) -> Void)
    case didSecure
    case didClose(AsyncSocketError?)

    var isEnd: Bool {
        switch self {
        case .didClose: true
        case .didConnect, .didNotConnect, .didSend, .didNotSend, .highWater, .lowWater, .didReceive, .didFailToReach,
            .didReceiveTrust, .didSecure:
            false
        }
    }

    /// Large enough for all datagrams that a turn receives and the events of their replies, so that the
    /// replies are sent in one batch.
    static var deliveryLimit: Int { 256 }

    /// Each datagram is a separate event.
    var isProgress: Bool { false }

    mutating func absorb(_ next: DatagramEvent) -> Bool { false }
}

/// A datagram queued for the delegate. A class, so that a queue of events moves it as one word.
final class DatagramArrived: Sendable {
    let datagram: Datagram
    let credit: ReceiveCredit
    /// Whether the datagram is plaintext that must not be delivered after `startDTLS`.
    let endsAtUpgrade: Bool

    init(_ datagram: consuming Datagram, _ credit: ReceiveCredit, endsAtUpgrade: Bool) {
        self.datagram = datagram
        self.credit = credit
        self.endsAtUpgrade = endsAtUpgrade
    }
}

/// The memory budget for datagrams not yet delivered to the delegate. If the delegate is slow, further
/// datagrams stay in the kernel, which drops datagrams when its buffer is full.
///
/// The turn takes credit, and the delivery returns it.
final class ReceiveCredit: Sendable {
    static let costOfReport = 256

    private let outstanding = Atomic(0)
    private let limit: Atomic<Int>
    private let isWaiting = Atomic(false)
    private let roomIsBack: @Sendable () -> Void
    private let counts: DatagramCounts

    /// - Parameter roomIsBack: Called on the delivering thread when less than half of the limit is in use.
    init(limit: Int, _ counts: DatagramCounts, roomIsBack: @escaping @Sendable () -> Void) {
        self.limit = Atomic(limit)
        self.counts = counts
        self.roomIsBack = roomIsBack
    }

    var isUpgradeClaimed: Bool { counts.isUpgradeClaimed.load(ordering: .acquiring) }

    func setLimit(_ limit: Int) {
        self.limit.store(limit, ordering: .relaxed)
    }

    /// Whether the turn may receive more. If false, `roomIsBack` will be called.
    var hasRoom: Bool {
        if isBelow(limit.load(ordering: .relaxed)) { return true }
        isWaiting.store(true, ordering: .sequentiallyConsistent)
        // The delegate may have consumed everything since the check.
        return isBelowHalf && isWaiting.exchange(false, ordering: .sequentiallyConsistent)
    }

    func take(_ cost: Int) {
        outstanding.add(cost, ordering: .sequentiallyConsistent)
    }

    func give(_ cost: Int) {
        outstanding.subtract(cost, ordering: .sequentiallyConsistent)
        guard isWaiting.load(ordering: .sequentiallyConsistent), isBelowHalf,
            isWaiting.exchange(false, ordering: .sequentiallyConsistent)
        else { return }
        roomIsBack()
    }

    private var isBelowHalf: Bool { isBelow(max(limit.load(ordering: .relaxed) / 2, 1)) }

    private func isBelow(_ bound: Int) -> Bool {
        let outstanding = outstanding.load(ordering: .sequentiallyConsistent)
        // A single datagram is always allowed.
        return outstanding == 0 || outstanding < bound
    }
}

enum ReceiveMode: Sendable {
    case off
    case once
    case continuous
}

struct DatagramAttempt {
    let target: DatagramTarget
    /// The number of the `connect` call in the record.
    let claim: Int
    let deadline: Deadline?
    let seconds: Double
    /// If `nil`, the delegate is notified.
    let waiter: (any OperationWaiter<Void>)?
    /// Whether the socket is not bound yet, so a descriptor must be opened for each address that is tried.
    let opens: Bool
}

/// A request or an event for a UDP socket, handled inside its turn.
enum DatagramMessage: Sendable {
    /// Descriptors have been opened that the loop does not watch yet.
    case opened
    case events(LoopEvents)
    /// The number is the call's claim in the record.
    indirect case connect(DatagramTarget, Int, timeout: Double, waiter: (any OperationWaiter<Void>)? = nil)
    /// Undoes the `connect` call with this claim.
    case dissolveAssociation(Int)
    indirect case resolved(HostQuery, Resolver.Answer)
    indirect case send(DatagramPacket)
    /// A datagram could not be queued. The delegate receives the error.
    indirect case refuse(tag: Int, AsyncSocketError)
    case judgedSend(number: UInt64, Bool)
    indirect case judgedReceive(Datagram, DatagramVerdict)
    case receive(DatagramWaiter)
    indirect case exchanging(Exchange, ExchangeStep)
    case setReceiveMode(ReceiveMode)
    case roomIsBack
    indirect case setSendFilter(SendFilter?)
    indirect case setReceiveFilter(ReceiveFilter?)
    case configure(DatagramConfiguration.Shared)
    case changeDelegateQueue
    /// The network reported that a datagram was not delivered.
    indirect case unreachable(AsyncSocketError)
    /// Adds or removes a reader of delivery failures.
    case reportFailures(to: DeliveryFailureReader, Bool)
    indirect case startTLS(TLSRequest)
    indirect case upgrading(UpgradeNews)
    /// The listener's peer has started a new connection from the same port.
    case replaced
    indirect case awaitEnd(any OperationWaiter<Void>)
    indirect case cancel(any AnyObject & Sendable)
    case closeAfterSending
    indirect case close(AsyncSocketError?)
    indirect case perform(@Sendable ([Int32]) -> Void)
    case retire
}

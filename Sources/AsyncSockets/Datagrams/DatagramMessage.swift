internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// An event for the delegate of a UDP socket. A plain value, like `DelegateEvent`.
enum DatagramEvent: SocketEvent {
    indirect case didConnect(SocketAddress)
    indirect case didNotConnect(AsyncSocketError)
    case didSend(tag: Int)
    indirect case didNotSend(tag: Int, AsyncSocketError)
    case highWater(Int)
    case lowWater(Int)
    case didReceive(DatagramArrived)
    indirect case didFailToReach(SocketAddress?, AsyncSocketError, ReceiveCredit)
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

    /// The replies to datagrams leave together, so a delivery has all that a turn has received, and what was
    /// sent for them.
    static var deliveryLimit: Int { 256 }

    /// Each datagram is an event of its own.
    var isProgress: Bool { false }

    mutating func absorb(_ next: DatagramEvent) -> Bool { false }
}

/// A datagram on its way to the delegate. An object, which a queue of events moves as one word.
final class DatagramArrived: Sendable {
    let datagram: Datagram
    let credit: ReceiveCredit
    /// It is plaintext, which is not delivered behind `startDTLS`.
    let endsAtUpgrade: Bool

    init(_ datagram: consuming Datagram, _ credit: ReceiveCredit, endsAtUpgrade: Bool) {
        self.datagram = datagram
        self.credit = credit
        self.endsAtUpgrade = endsAtUpgrade
    }
}

/// The memory that datagrams may take that the delegate has not had yet: with a slow delegate the kernel
/// keeps the others, and drops what it has no room for.
///
/// The turn takes, and the delivery gives back.
final class ReceiveCredit: Sendable {
    /// The share of a report that a datagram did not arrive.
    static let costOfReport = 256

    private let outstanding = Atomic(0)
    private let limit: Atomic<Int>
    /// The turn waits for room.
    private let isWaiting = Atomic(false)
    private let roomIsBack: @Sendable () -> Void
    private let counts: DatagramCounts

    /// - Parameter roomIsBack: Called on the thread that delivers when there is room for half of the limit.
    init(limit: Int, _ counts: DatagramCounts, roomIsBack: @escaping @Sendable () -> Void) {
        self.limit = Atomic(limit)
        self.counts = counts
        self.roomIsBack = roomIsBack
    }

    /// `startDTLS` was called.
    var isUpgradeClaimed: Bool { counts.isUpgradeClaimed.load(ordering: .acquiring) }

    func setLimit(_ limit: Int) {
        self.limit.store(limit, ordering: .relaxed)
    }

    /// False when the turn has to wait; `roomIsBack` follows.
    var hasRoom: Bool {
        if isBelow(limit.load(ordering: .relaxed)) { return true }
        isWaiting.store(true, ordering: .sequentiallyConsistent)
        // The delegate may have had all of them in between.
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
        // One datagram is never too much.
        return outstanding == 0 || outstanding < bound
    }
}

/// Which datagrams the delegate wants.
enum ReceiveMode: Sendable {
    case off
    case once
    case continuous
}

/// An attempt to connect.
struct DatagramAttempt {
    let target: DatagramTarget
    /// Its number in the record.
    let claim: Int
    let deadline: Deadline?
    let seconds: Double
    /// Nil: the delegate waits.
    let waiter: (any OperationWaiter<Void>)?
    /// The socket was not bound before: it gets a descriptor for the address that is tried.
    let opens: Bool
}

/// A request or an event for a UDP socket, inside its turn.
enum DatagramMessage: Sendable {
    /// There are descriptors that the loop does not watch yet.
    case opened
    case events(LoopEvents)
    /// With the number of its claim in the record.
    indirect case connect(DatagramTarget, Int, timeout: Double, waiter: (any OperationWaiter<Void>)? = nil)
    /// Ends what came of the call of `connect` with that claim.
    case disconnect(Int)
    indirect case resolved(HostQuery, Resolver.Answer)
    indirect case send(DatagramPacket)
    /// A datagram of the delegate that could not be accepted.
    indirect case refuse(tag: Int, AsyncSocketError)
    case judgedSend(number: UInt64, Bool)
    indirect case judgedReceive(Datagram, DatagramVerdict)
    case receive(DatagramWaiter)
    case setReceiveMode(ReceiveMode)
    case roomIsBack
    indirect case setSendFilter(SendFilter?)
    indirect case setReceiveFilter(ReceiveFilter?)
    case configure(DatagramConfiguration.Shared)
    case changeDelegateQueue
    /// A datagram did not arrive, as the network says.
    indirect case unreachable(AsyncSocketError)
    /// A task wants to know of datagrams that did not arrive, or does not any more.
    case reportFailures(to: DeliveryFailureReader, Bool)
    indirect case startTLS(TLSRequest)
    indirect case upgrading(UpgradeNews)
    /// The peer of a listener has begun a new connection from its port.
    case replaced
    indirect case awaitEnd(any OperationWaiter<Void>)
    indirect case cancel(any AnyObject & Sendable)
    case closeAfterSending
    indirect case close(AsyncSocketError?)
    indirect case perform(@Sendable ([Int32]) -> Void)
    case retire
}
